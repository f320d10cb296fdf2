import type { Clock } from '../../../lib/clock.ts'
import { denied } from '../../../lib/errors.ts'
import type { Mount } from '../../backend.ts'
import type { Barrier } from '../../seal/barrier.ts'
import { VersionConflict } from '../../storage/driver.ts'
import { retryConflicts } from '../../storage/retry.ts'
import { put, remove, type Store } from '../../storage/store.ts'
import { createAttempts } from './attempts.ts'
import { countedEntry, countedName } from './names.ts'
import { LOCKOUT_QUEUE, lockoutKind } from './records.ts'

/** An entry has no more names than this that anybody would unlock it by. */
const MOST_OTHERS = 10

/**
 * Counts refused logins per mount and name and locks a name that failed too often. Only "wrong name or password" counts; a
 * directory that cannot be reached does not. What is found under several names (values of one attribute, spellings that only the directory takes
 * for one) is counted as an entry besides. Kept in the store, so that a restart or another replica forgets nothing.
 */
export interface Lockout {
  /**
   * Runs an attempt to log in under a name, or into the entry found under it; it resolves with what succeeded, or `undefined` for a wrong name or
   * password. Throws `denied` without running it while that is locked. Attempts made at once wait, until one of the signals ends it, so that
   * together they cannot be more than the counter allows.
   */
  attempt<T>(
    mount: Mount,
    counted: { readonly name: string; readonly entry?: string },
    signals: readonly AbortSignal[],
    work: () => Promise<T | undefined>,
  ): Promise<T | undefined>
  /** The names that are locked now. */
  locked(mount: Mount): Promise<string[]>
  /** Forgets the failures under a name and into what was found under it. */
  unlock(mount: Mount, name: string): Promise<void>
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
    async attempt(mount, counted, signals, work) {
      const { threshold, durationMs, counterResetMs, disabled } = mount.lockout
      if (disabled) return work()
      // Keys are not sealed, and people type passwords where their names belong.
      const name = countedName(counted.name)
      const subject = counted.entry === undefined ? name : countedEntry(counted.entry)
      const key = `${mount.id}/${barrier.hash('lockout', subject)}`

      let countedAt: number | undefined

      /** How many attempts may still fail. */
      async function left(): Promise<number> {
        const found = await store.read(lockoutKind, key)
        countedAt = found?.version
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
          const others = counts ? namesOf(found.value).filter((other) => other !== name) : []
          const value = {
            name,
            failures,
            ...(others.length > 0 && { others: others.slice(0, MOST_OTHERS) }),
            ...(locked && { lockedUntil: over }),
          }
          const options = { expected: found?.version ?? 0, due: { queue: LOCKOUT_QUEUE, at: over } }
          await store.commit([put(lockoutKind, key, value, options)])
        })
      }

      /** What failed beside this attempt goes on counting. */
      async function succeeded(): Promise<void> {
        if (countedAt === undefined) return
        await store.commit([remove(lockoutKind, key, { expected: countedAt })]).catch((error: unknown) => {
          if (!(error instanceof VersionConflict)) throw error
        })
      }

      const leave = await attempts.enter(key, left, ...signals)
      if (!leave) throw denied()
      try {
        const result = await work()
        await (result === undefined ? failed() : succeeded())
        return result
      } finally {
        leave()
      }
    },

    async locked(mount) {
      const now = clock.now()
      const names = new Set<string>()
      for await (const { value } of countersOf(store, mount))
        if (value.lockedUntil !== undefined && value.lockedUntil > now) names.add(value.name)
      return [...names].sort()
    },

    async unlock(mount, name) {
      const wanted = countedName(name)
      for await (const { key, value } of countersOf(store, mount))
        if (namesOf(value).includes(wanted)) await store.commit([remove(lockoutKind, key, { expected: 'any' })])
    },
  }
}

function namesOf({ name, others = [] }: { readonly name: string; readonly others?: readonly string[] }): string[] {
  return [name, ...others]
}

async function* countersOf(store: Store, mount: Mount) {
  for (let after: string | undefined; ; ) {
    const page = await store.list(lockoutKind, `${mount.id}/`, { limit: 500, ...(after !== undefined && { after }) })
    yield* page
    if (page.length < 500) return
    after = page.at(-1)?.key
  }
}
