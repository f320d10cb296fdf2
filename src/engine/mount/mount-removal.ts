import type { Clock } from '../../lib/clock.ts'
import type { Worker } from '../../lib/worker.ts'
import type { Mount } from '../backend.ts'
import type { MountTable } from './mount-table.ts'

/**
 * The end of mounts. Order: commit that the mount is being removed (from here on nobody finds it), have its backend forget what it owned, and
 * again when every request that had found it before is over, for what such a one wrote; then forget the mount itself. What stops with its
 * process the worker takes over; doing a step twice changes nothing.
 */
export interface MountRemoval {
  /** Resolves when nobody finds the mount any more and what it owned is forgotten. */
  remove(mount: Mount, signal: AbortSignal): Promise<void>
  readonly worker: Worker
}

/** Longer than any request takes. */
const LINGER_MS = 300_000
/** Another server may have removed one. */
const LOOK_MS = 60_000

export function createMountRemoval({
  mounts,
  clock,
}: {
  readonly mounts: () => MountTable
  readonly clock: Clock
}): MountRemoval {
  const forget = async (mount: Mount, signal: AbortSignal) => mounts().backendOf(mount).unmount?.(mount, signal)
  return {
    async remove(mount, signal) {
      await mounts().retire(mount.id, clock.now())
      await forget(mount, signal)
    },
    worker: {
      name: 'mount-removal',
      async tick(signal) {
        let waitMs = LOOK_MS
        const failures: unknown[] = []
        for (const { mount, since } of await mounts().retired()) {
          try {
            await forget(mount, signal)
            const leftMs = since.getTime() + LINGER_MS - clock.now().getTime()
            if (leftMs <= 0) await mounts().drop(mount.id)
            else waitMs = Math.min(waitMs, leftMs)
          } catch (error) {
            failures.push(error)
          }
        }
        // One that cannot be forgotten holds up no other.
        if (failures.length > 0) throw new AggregateError(failures, 'what a removed mount owned cannot be forgotten')
        return waitMs
      },
    },
  }
}
