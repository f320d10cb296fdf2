import { chmod, readFile, rename, writeFile } from 'node:fs/promises'
import { invalid, messageOf } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'

/** The token that `login` left, if there is one. */
export async function readToken(file: string): Promise<Secret | undefined> {
  try {
    const text = (await readFile(file, 'utf8')).trim()
    return text === '' ? undefined : new Secret(text)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw invalid(`cannot read the saved token in ${file}: ${messageOf(error)}`)
  }
}

/** Leaves a token where only its owner reads it. */
export async function saveToken(file: string, token: Secret): Promise<void> {
  const fresh = `${file}.new`
  try {
    await writeFile(fresh, `${token.reveal()}\n`, { mode: 0o600 })
    await chmod(fresh, 0o600)
    await rename(fresh, file)
  } catch (cause) {
    throw invalid(`cannot save the token in ${file}: ${messageOf(cause)}`, { cause })
  }
}
