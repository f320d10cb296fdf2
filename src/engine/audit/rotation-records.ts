import * as z from 'zod'
import type { Clock } from '../../lib/clock.ts'
import type { Worker } from '../../lib/worker.ts'
import type { EngineEvent } from '../storage/event.ts'
import { retryConflicts } from '../storage/retry.ts'
import { put, recordKind, type Store } from '../storage/store.ts'
import type { Audit } from './audit.ts'

/**
 * Brings rotations into the audit log: nobody asks for most of them, so no request's record tells of them.
 *
 * Follows the event feed, whose events are written in the commit that made them true, and keeps its place in the store: a record is written at
 * least once, also when the log could not be written for a while or the server was killed in between. `number` tells a repeated one.
 */
export function createRotationRecords({
  store,
  audit,
  clock,
}: {
  readonly store: Store
  readonly audit: Pick<Audit, 'event'>
  readonly clock: Clock
}): Worker {
  let changed = Promise.withResolvers<void>()
  store.onPublish(() => changed.resolve())

  async function record(event: EngineEvent): Promise<void> {
    const { number, time, type, mount, path, owner, data } = event
    const facts = { event: type, number, mount, path, ...(owner !== undefined && { owner }), ...data }
    if (RECORDED.has(type)) await audit.event('rotation', facts, time)
  }

  const recordGap = (after: number, firstKept: number) =>
    audit.event('rotation-gap', { after, first_kept: firstKept }, clock.now())

  return {
    name: 'rotation-records',
    async tick() {
      changed = Promise.withResolvers<void>()
      for (;;) {
        const before = await store.read(placeKind, KEY)
        const after = before?.value.after ?? 0
        const { events, damaged, firstKept } = await store.events(after, PAGE)
        if (firstKept > after + 1 && before) await recordGap(after, firstKept)
        let reached = after
        try {
          for (const one of [...events, ...damaged].sort((a, b) => numberOf(a) - numberOf(b))) {
            if (typeof one === 'number') await recordGap(one - 1, one + 1)
            else await record(one)
            reached = numberOf(one)
          }
        } finally {
          if (reached > after) await remember(store, reached)
        }
        if (events.length + damaged.length < PAGE) return LOOK_MS
      }
    },
    async wake(signal) {
      await Promise.race([changed.promise, clock.sleep(LOOK_MS, signal)])
      // What happens at one time goes into one look.
      await clock.sleep(GATHER_MS, signal)
    },
  }
}

/** What an administrator asks about later: who has had which password since when, and what went wrong. */
const RECORDED = new Set(['rotate', 'rotate-fail', 'drift'])
const PAGE = 500
const GATHER_MS = 200
/** Another server's commits wake nobody here. */
const LOOK_MS = 10_000

const numberOf = (one: EngineEvent | number) => (typeof one === 'number' ? one : one.number)

const placeKind = recordKind('core/', z.object({ after: z.int() }))
const KEY = 'audit-place'

/** Never goes back: another server may have come further. */
async function remember(store: Store, reached: number): Promise<void> {
  await retryConflicts(async () => {
    const before = await store.read(placeKind, KEY)
    if (before && before.value.after >= reached) return
    await store.commit([put(placeKind, KEY, { after: reached }, { expected: before?.version ?? 0 })])
  })
}
