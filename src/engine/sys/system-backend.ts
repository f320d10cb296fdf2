import type { Clock } from '../../lib/clock.ts'
import type { Backend, Route } from '../backend.ts'
import { createMountRemoval } from '../mount/mount-removal.ts'
import type { MountTable } from '../mount/mount-table.ts'
import type { Store } from '../storage/store.ts'
import { eventRoutes } from './events.ts'
import { healthRoutes } from './health.ts'
import { interfaceRoutes } from './interface.ts'
import { lockedUserRoutes } from './locked-users.ts'
import { mountRoutes } from './mounts.ts'
import { remountRoutes } from './remount.ts'
import { snapshotRoutes } from './snapshot.ts'
import { tenancyRoutes } from './tenancy.ts'

/** The `sys/` mount: how the server is, what is mounted where, policies, the event feed, backups. One file per path. */
export function createSystemBackend(deps: {
  readonly mounts: () => MountTable
  readonly store: Store
  readonly clock: Clock
  readonly version: string
  readonly clusterId: string
  readonly snapshotDir: string | undefined
  readonly also: readonly Route[]
}): Backend {
  const removal = createMountRemoval(deps)
  return {
    type: 'system',
    workers: [removal.worker],
    routes: [
      ...healthRoutes(deps),
      ...eventRoutes(deps),
      ...snapshotRoutes(deps),
      ...tenancyRoutes(deps),
      ...lockedUserRoutes(deps.mounts),
      ...deps.also,
      ...interfaceRoutes(deps.mounts),
      ...mountRoutes(deps.mounts, removal),
      ...remountRoutes(deps.mounts),
    ],
  }
}
