import { backoffMs } from './backoff.ts'
import type { Clock } from './clock.ts'
import { systemRandom } from './random.ts'

/** One piece of background work. `tick` says when to look again; it never overlaps itself. */
export interface Worker {
  readonly name: string
  /** Does what is due and returns how many milliseconds may pass before the next look. */
  tick(signal: AbortSignal): Promise<number>
  /** Resolves when there may be something to do before the time that the last tick named. */
  wake?(signal: AbortSignal): Promise<void>
}

export interface WorkerOptions {
  readonly clock: Clock
  readonly signal: AbortSignal
  /** A failing tick is reported here and tried again, from 1 s up to 1 min later. */
  readonly onError: (error: unknown) => void
}

// Made once: without one, each abort makes an error with a stack.
const OVER = new Error('the wait is over')

/** Runs a worker until the signal aborts; resolves after the last tick has ended. */
export async function runWorker(worker: Worker, { clock, signal, onError }: WorkerOptions): Promise<void> {
  let failures = 0
  while (!signal.aborted) {
    let waitMs: number
    try {
      waitMs = await worker.tick(signal)
      failures = 0
    } catch (error) {
      if (signal.aborted) return
      onError(error)
      failures += 1
      waitMs = backoffMs(failures, { firstMs: 1_000, limitMs: 60_000 }, systemRandom)
    }
    const ended = new AbortController()
    const either = AbortSignal.any([signal, ended.signal])
    const waits = [clock.sleep(waitMs, either), ...(worker.wake && failures === 0 ? [worker.wake(either)] : [])]
    await Promise.race(waits.map((wait) => wait.catch(() => undefined)))
    ended.abort(OVER)
  }
}
