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
      await sleepFor(Math.min(Math.max(left, 0), LONGEST_TIMER_MS), signal)
      left = end - performance.now()
    } while (left > 1)
  },
}

/** Not that of Node, which rejects with an error of its own: it says nothing of why, and its stack costs more than the sleep. */
function sleepFor(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const abort = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort)
      resolve()
    }, ms)
    signal?.addEventListener('abort', abort, { once: true })
  })
}
