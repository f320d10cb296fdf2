import type { Clock } from '../../lib/clock.ts'
import type { Worker } from '../../lib/worker.ts'
import type { Store } from '../storage/store.ts'

const KEEP_MS = 7 * 24 * 3_600_000
const KEEP_COUNT = 1_000_000
const EVERY_MS = 600_000

/** Keeps the event feed to seven days and a million events. */
export function createEventPruner({ store, clock }: { readonly store: Store; readonly clock: Clock }): Worker {
  return {
    name: 'event-pruner',
    async tick() {
      await store.pruneEvents({ before: new Date(clock.now().getTime() - KEEP_MS), keep: KEEP_COUNT })
      return EVERY_MS
    },
  }
}
