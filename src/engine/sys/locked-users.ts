import { invalid } from '../../lib/errors.ts'
import { type Route, route } from '../backend.ts'
import type { MountTable } from '../mount/mount-table.ts'

/** `sys/locked-users`: names under which nobody may log in for a while, by mount, and how to let them in again. */
export function lockedUserRoutes(mounts: () => MountTable): Route[] {
  const authMounts = async () => (await mounts().all()).filter((mount) => mount.class === 'auth')
  return [
    route({
      pattern: 'locked-users',
      async read() {
        const found = await Promise.all(
          (await authMounts()).map(async (mount) => ({
            accessor: mount.accessor,
            names: (await mounts().backendOf(mount).lockedLogins?.(mount)) ?? [],
          })),
        )
        const locked = found.filter(({ names }) => names.length > 0)
        const total = locked.reduce((sum, { names }) => sum + names.length, 0)
        return {
          shape: 'envelope',
          data: {
            by_namespace: [
              {
                namespace_id: 'root',
                namespace_path: '',
                counts: total,
                mount_accessors: locked.map(({ accessor, names }) => ({
                  mount_accessor: accessor,
                  counts: names.length,
                  alias_identifiers: names,
                })),
              },
            ],
            total,
          },
        }
      },
    }),
    route({
      pattern: 'locked-users/:accessor/unlock/:name+',
      async write({ params }) {
        const { accessor = '', name = '' } = params
        const mount = (await authMounts()).find((candidate) => candidate.accessor === accessor)
        if (!mount) throw invalid(`no auth mount has the accessor "${accessor}"`)
        await mounts().backendOf(mount).unlockLogin?.(mount, name)
        return undefined
      },
    }),
  ]
}
