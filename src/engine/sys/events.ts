import * as z from 'zod'
import type { Clock } from '../../lib/clock.ts'
import type { Values } from '../../schema/answer.ts'
import { duration, integer } from '../../schema/fields.ts'
import { wire } from '../../schema/wire.ts'
import { type Route, route } from '../backend.ts'
import type { EngineEvent } from '../storage/event.ts'
import type { Store } from '../storage/store.ts'

const LONGEST_WAIT_MS = 60_000
// Another replica's commits wake nobody here, so a waiting reader looks by itself this often.
const LOOK_MS = 1_000

const body = wire(
  z.object({
    after: integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
    wait: duration(),
    limit: integer({ min: 1, max: 1000 }),
  }),
)

/**
 * `GET sys/events?after=N&wait=30s`: what happened after event N, at once when there is something, else when something happens or the
 * wait (at most 60 s) is over. `gap` is true when events after N are no longer kept or cannot be read, or when the feed has not come so far (it was restored
 * from a backup): list everything anew and go on from `last`.
 * Without `after` it answers where the feed stands, without events.
 */
export function eventRoutes({ store, clock }: { readonly store: Store; readonly clock: Clock }): Route[] {
  return [
    route({
      pattern: 'events',
      body,
      async read({ fields: { after, wait = 0, limit = 500 }, signal }) {
        if (after === undefined) {
          const { last, firstKept } = await store.events(Number.MAX_SAFE_INTEGER, 1)
          return { shape: 'envelope', data: { events: [], last, first_kept: firstKept, gap: false } }
        }
        const end = clock.monotonicMs() + Math.min(wait, LONGEST_WAIT_MS)
        for (;;) {
          const { promise: published, resolve } = Promise.withResolvers<void>()
          const stop = store.onPublish(resolve)
          try {
            const { events, damaged, last, firstKept } = await store.events(after, limit)
            const gap = firstKept > after + 1 || after > last || damaged.length > 0
            const left = end - clock.monotonicMs()
            if (events.length > 0 || gap || left <= 0)
              return { shape: 'envelope', data: { events: events.map(spell), last, first_kept: firstKept, gap } }
            await waitFor(published, Math.min(left, LOOK_MS), clock, signal)
          } finally {
            stop()
          }
        }
      },
    }),
  ]
}

async function waitFor(published: Promise<void>, ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  const over = new AbortController()
  const slept = clock.sleep(ms, AbortSignal.any([signal, over.signal]))
  await Promise.race([published, slept]).finally(() => over.abort())
  slept.catch(() => undefined)
}

function spell({ number, time, type, mount, path, owner, data }: EngineEvent): Values {
  return { number, time, type, mount, path, owner: owner ?? '', data: data ?? {} }
}
