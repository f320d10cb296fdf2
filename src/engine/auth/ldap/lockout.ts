import type { Clock } from '../../../lib/clock.ts'
import type { Mount } from '../../backend.ts'
import type { Barrier } from '../../seal/barrier.ts'
import { retryConflicts } from '../../storage/retry.ts'
import { put, remove, type Store } from '../../storage/store.ts'
import { createAttempts } from './attempts.ts'
import { LOCKOUT_QUEUE, lockoutKind } from './records.ts'

/**
 * Counts refused logins per mount and name and locks a name that failed too often (CONTRACT 3.6). Only "wrong name or password" counts; a
 * directory that cannot be reached does not. Kept in the store, so that a restart or another replica forgets nothing.
 */
export interface Lockout {
  /**
   * Runs an attempt to log in under a name; it resolves with what succeeded, or `undefined` for a wrong name or password. `locked` without
   * running it while the name is locked. Attempts made at once wait, so that together they cannot be more than the counter allows.
   */
  attempt<T>(
    mount: Mount,
    name: string,
    signal: AbortSignal,
    work: () => Promise<T | undefined>,
  ): Promise<T | 'locked' | undefined>
}

export function createLockout({
  store,
  barrier,
  clock,
}: {
  readonly store: Store
  readonly barrier: Pick<Barrier, 'hash'>
  readonly clock: Clock
}): Lockout {
  const attempts = createAttempts()
  return {
    async attempt(mount, name, signal, work) {
      const { threshold, durationMs, counterResetMs, disabled } = mount.lockout
      if (disabled) return work()
      // Keys are not sealed, and people type passwords where their names belong.
      const key = `${mount.id}/${barrier.hash('lockout', name)}`

      /** How many attempts may still fail. */
      async function left(): Promise<number> {
        const found = await store.read(lockoutKind, key)
        const now = clock.now()
        if (found?.value.lockedUntil !== undefined && found.value.lockedUntil > now) return 0
        const counts = found?.due !== undefined && found.due.at > now
        return Math.max(1, threshold - (counts ? found.value.failures : 0))
      }

      async function failed(): Promise<void> {
        await retryConflicts(async () => {
          const now = clock.now()
          const found = await store.read(lockoutKind, key)
          const counts = found?.due !== undefined && found.due.at > now
          const failures = (counts ? found.value.failures : 0) + 1
          const locked = failures >= threshold
          const over = new Date(now.getTime() + (locked ? durationMs : counterResetMs))
          const value = { name, failures, ...(locked && { lockedUntil: over }) }
          const options = { expected: found?.version ?? 0, due: { queue: LOCKOUT_QUEUE, at: over } }
          await store.commit([put(lockoutKind, key, value, options)])
        })
      }

      async function succeeded(): Promise<void> {
        if (await store.read(lockoutKind, key)) await store.commit([remove(lockoutKind, key, { expected: 'any' })])
      }

      const leave = await attempts.enter(key, left, signal)
      if (!leave) return 'locked'
      try {
        const result = await work()
        await (result === undefined ? failed() : succeeded())
        return result
      } finally {
        leave()
      }
    },
  }
}
