import { mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'

/** Replaces a file as a whole: readers see the old text or the new. 0600, in folders of 0700; durable when `sync`. */
export async function replaceFile(path: string, text: string, { sync = false } = {}): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const temporary = `${path}.new`
  try {
    const file = await open(temporary, 'w', 0o600)
    try {
      await file.writeFile(text)
      if (sync) await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}
