import type { Clock } from '../../lib/clock.ts'
import { openFileSeal } from '../seal/file-seal.ts'
import { restoreSnapshot } from '../storage/restore.ts'

/**
 * `keyturn restore FILE --data DIR`: lays a backup where no store is yet. `sealKeyFile` must hold the key of the store that was backed
 * up. The next start proves every account before it serves a password. Throws `invalid` and changes nothing when it cannot.
 */
export async function restore(
  options: { file: string; data: string; sealKeyFile: string },
  { clock, print }: { clock: Clock; print: (line: string) => void },
): Promise<void> {
  const seal = openFileSeal(options.sealKeyFile)
  const restored = await restoreSnapshot({ snapshot: options.file, location: options.data, seal, clock })
  print(`Restored ${options.file} to ${restored}.`)
  print(
    'At its next start the server proves every password by a bind before it serves it, and rotates those that no longer work.',
  )
}
