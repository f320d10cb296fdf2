import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import type { Clock } from '../../lib/clock.ts'
import { denied, invalid } from '../../lib/errors.ts'
import { text } from '../../schema/fields.ts'
import { wire } from '../../schema/wire.ts'
import { type Route, route } from '../backend.ts'
import type { Store } from '../storage/store.ts'

const body = wire(z.object({ file: text(4096) }))

/**
 * `POST sys/storage/snapshot`: a consistent copy of the store while it runs, sealed as the store is, in a new file on the server's own
 * machine: `file` an absolute path, else a name in the data directory's `snapshots/`. Needs `sudo`. An absolute path is taken only from
 * the same machine, over the unix socket or loopback, for who writes there writes with the server's rights.
 */
export function snapshotRoutes(deps: {
  readonly store: Store
  readonly clock: Clock
  readonly snapshotDir: string | undefined
}): Route[] {
  return [
    route({
      pattern: 'storage/snapshot',
      sudo: true,
      body,
      async write({ fields: { file = defaultName(deps.clock.now()) }, remote }) {
        const dir = deps.snapshotDir
        if (dir === undefined) throw invalid('this store keeps nothing on disk: there is nothing to back up')
        if (file === '' || /\p{Cc}/u.test(file)) throw invalid('file must be a name without control characters')
        if (path.isAbsolute(file)) {
          if (remote.transport === 'tcp' && !isLoopback(remote.address))
            throw denied('permission denied: file may be an absolute path only on the server itself')
        } else if (path.basename(file) !== file || file.startsWith('.')) {
          throw invalid('file must be an absolute path, or a plain file name without slashes')
        }
        await mkdir(dir, { recursive: true, mode: 0o700 })
        const target = path.resolve(dir, file)
        await deps.store.snapshot(target)
        return { shape: 'envelope', data: { file: target } }
      },
    }),
  ]
}

function defaultName(now: Date): string {
  return `keyturn-${now.toISOString().replace(/[:.]/g, '-')}.db`
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.replace(/^::ffff:/, '').startsWith('127.')
}
