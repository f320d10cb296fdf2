import type { Barrier } from '../../src/engine/seal/barrier.ts'
import { openBarrier } from '../../src/engine/seal/keyring.ts'
import type { Seal } from '../../src/engine/seal/seal.ts'
import type { StorageDriver } from '../../src/engine/storage/driver.ts'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import { Store } from '../../src/engine/storage/store.ts'
import type { Clock } from '../../src/lib/clock.ts'

/** A seal that protects nothing: the keyring of a store in memory dies with it. */
const openSeal: Seal = { wrap: async (plain) => plain, unwrap: async (wrapped) => wrapped }

/** A real store over the memory driver, or over a driver that already holds one (a restart), with what it is made of. */
export async function openEngineStore(
  clock: Clock,
  driver: StorageDriver = createMemoryDriver(),
): Promise<{ store: Store; barrier: Barrier; driver: StorageDriver }> {
  const barrier = await openBarrier(driver, openSeal)
  return { store: new Store(driver, barrier, clock), barrier, driver }
}

/** The driver as seen by a process that is killed at its commit number `last + 1`: nothing reaches the store from then on. */
export function killedAfter(driver: StorageDriver, last: number): StorageDriver {
  return beforeCommits(driver, async (number) => {
    if (number > last) throw new Error('killed')
  })
}

/** The driver, but `hook` runs to its end before each commit, which has the number told (from 1). */
export function beforeCommits(driver: StorageDriver, hook: (number: number) => Promise<void>): StorageDriver {
  let commits = 0
  return {
    get: (key) => driver.get(key),
    version: (key) => driver.version(key),
    list: (prefix, options) => driver.list(prefix, options),
    claim: (queue, options) => driver.claim(queue, options),
    nextDue: (queue) => driver.nextDue(queue),
    events: (after, limit) => driver.events(after, limit),
    pruneEvents: (options) => driver.pruneEvents(options),
    snapshot: (file) => driver.snapshot(file),
    [Symbol.asyncDispose]: () => driver[Symbol.asyncDispose](),
    async commit(changes) {
      commits += 1
      await hook(commits)
      return driver.commit(changes)
    },
  }
}
