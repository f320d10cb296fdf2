import { type Environment, restoreConfig } from '../config.ts'
import { restore } from '../engine/commands/restore.ts'
import { systemClock } from '../lib/clock.ts'

/** `keyturn restore FILE --data DIR`. */
export async function restoreCommand(args: readonly string[], env: Environment): Promise<number> {
  const config = restoreConfig(args, env)
  await restore(config, { clock: systemClock, print: (line) => process.stdout.write(`${line}\n`) })
  return 0
}
