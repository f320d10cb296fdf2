import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { openProcessIo } from '../cli/io.ts'
import { type Environment, restoreConfig } from '../config.ts'
import { restore } from '../engine/commands/restore.ts'
import { systemClock } from '../lib/clock.ts'
import { invalid, messageOf } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'

/** `keyturn restore FILE --data DIR [--bind-password [MOUNT=]FILE]`. */
export async function restoreCommand(args: readonly string[], env: Environment): Promise<number> {
  const config = restoreConfig(args, env)
  const bindPasswords = await Promise.all(
    config.bindPasswords.map(async ({ mount, file }) => ({ mount, password: await passwordIn(file) })),
  )
  const io = openProcessIo()
  const print = (line: string) => io.out(`${line}\n`)
  await restore({ ...config, bindPasswords }, { clock: systemClock, print })
  const key = config.sealKeyFile === `${config.data}/seal-key` ? '' : ` --seal-key ${config.sealKeyFile}`
  print(`Start it with: keyturn server --data ${config.data}${key}`)
  return 0
}

/** The password in a file or, for `-`, on standard input; an editor's line break at its end does not belong to it. */
async function passwordIn(file: string): Promise<Secret> {
  let found: string
  try {
    found = file === '-' ? await text(process.stdin) : await readFile(file, 'utf8')
  } catch (cause) {
    throw invalid(`--bind-password: cannot read ${file}: ${messageOf(cause)}`, { cause })
  }
  const password = found.replace(/\r?\n$/, '')
  if (password === '') throw invalid(`--bind-password: ${file} is empty`)
  return new Secret(password)
}
