import { setTimeout as sleepFor } from 'node:timers/promises'

/** The only source of time. `now` is the wall clock; `monotonicMs` never jumps and measures durations and claims. */
export interface Clock {
  now(): Date
  monotonicMs(): number
  /** Resolves after `ms` milliseconds; rejects with the signal's reason when it aborts first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

// Node's timers hold a signed 32-bit number of milliseconds: a longer sleep would end at once.
const LONGEST_TIMER_MS = 2_147_483_647

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
  async sleep(ms, signal) {
    const end = performance.now() + ms
    let left = ms
    do {
      const slept = sleepFor(Math.min(Math.max(left, 0), LONGEST_TIMER_MS), undefined, signal && { signal })
      // Node rejects with an error of its own, which says nothing of why.
      await slept.catch((error: unknown) => {
        throw signal?.aborted ? signal.reason : error
      })
      left = end - performance.now()
    } while (left > 1)
  },
}
