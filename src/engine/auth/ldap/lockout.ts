import type { Clock } from '../../../lib/clock.ts'
import type { Mount } from '../../backend.ts'
import { retryConflicts } from '../../storage/retry.ts'
import { put, remove, type Store } from '../../storage/store.ts'
import { LOCKOUT_QUEUE, lockoutKind } from './records.ts'

/**
 * Counts refused logins per mount and name and locks a name that failed too often (CONTRACT 3.6). Only "wrong name or password" counts; a
 * directory that cannot be reached does not. Kept in the store, so that a restart or another replica forgets nothing.
 */
export interface Lockout {
  isLocked(mount: Mount, name: string): Promise<boolean>
  failed(mount: Mount, name: string): Promise<void>
  succeeded(mount: Mount, name: string): Promise<void>
}

export function createLockout({ store, clock }: { readonly store: Store; readonly clock: Clock }): Lockout {
  const keyOf = (mount: Mount, name: string) => `${mount.id}/${name}`
  return {
    async isLocked(mount, name) {
      if (mount.lockout.disabled) return false
      const found = await store.read(lockoutKind, keyOf(mount, name))
      return found?.value.lockedUntil !== undefined && found.value.lockedUntil > clock.now()
    },

    async failed(mount, name) {
      const { threshold, durationMs, counterResetMs, disabled } = mount.lockout
      if (disabled) return
      const key = keyOf(mount, name)
      await retryConflicts(async () => {
        const now = clock.now()
        const found = await store.read(lockoutKind, key)
        const counts = found?.due !== undefined && found.due.at > now
        const failures = (counts ? found.value.failures : 0) + 1
        const locked = failures >= threshold
        const over = new Date(now.getTime() + (locked ? durationMs : counterResetMs))
        const value = { failures, ...(locked && { lockedUntil: over }) }
        const options = { expected: found?.version ?? 0, due: { queue: LOCKOUT_QUEUE, at: over } }
        await store.commit([put(lockoutKind, key, value, options)])
      })
    },

    async succeeded(mount, name) {
      const key = keyOf(mount, name)
      if (await store.read(lockoutKind, key)) await store.commit([remove(lockoutKind, key, { expected: 'any' })])
    },
  }
}
