import { openBarrier } from '../../src/engine/seal/keyring.ts'
import type { Seal } from '../../src/engine/seal/seal.ts'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import { Store } from '../../src/engine/storage/store.ts'
import { type Clock, systemClock } from '../../src/lib/clock.ts'

/** Wraps nothing: for stores that live in memory only. */
const plainSeal: Seal = { wrap: async (plain) => plain, unwrap: async (wrapped) => wrapped }

export async function memoryStore(clock: Clock = systemClock): Promise<Store> {
  const driver = createMemoryDriver()
  return new Store(driver, await openBarrier(driver, plainSeal), clock)
}
