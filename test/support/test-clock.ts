import { setImmediate as yieldToLoop } from 'node:timers/promises'
import type { Clock } from '../../src/lib/clock.ts'

interface Sleeper {
  readonly atMs: number
  readonly wake: () => void
}

/** A clock that moves only when told. `advance` lets everything that can run reach its next sleep before it moves. */
export class TestClock implements Clock {
  #nowMs: number
  readonly #startMs: number
  readonly #sleepers = new Set<Sleeper>()

  constructor(start = new Date('2026-01-01T00:00:00Z')) {
    this.#nowMs = start.getTime()
    this.#startMs = this.#nowMs
  }

  now(): Date {
    return new Date(this.#nowMs)
  }

  monotonicMs(): number {
    return this.#nowMs - this.#startMs
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const abort = () => {
        this.#sleepers.delete(sleeper)
        reject(signal?.reason)
      }
      const sleeper = {
        atMs: this.#nowMs + ms,
        wake: () => {
          signal?.removeEventListener('abort', abort)
          resolve()
        },
      }
      signal?.addEventListener('abort', abort, { once: true })
      this.#sleepers.add(sleeper)
    })
  }

  /** Moves time forward, waking sleepers in order, each at its own moment. */
  async advance(ms: number): Promise<void> {
    const end = this.#nowMs + ms
    for (;;) {
      await settle()
      const next = [...this.#sleepers].filter((s) => s.atMs <= end).sort((a, b) => a.atMs - b.atMs)[0]
      if (!next) break
      this.#nowMs = Math.max(this.#nowMs, next.atMs)
      this.#sleepers.delete(next)
      next.wake()
    }
    this.#nowMs = end
    await settle()
  }
}

/** Lets every promise and I/O callback that is ready run. */
async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await yieldToLoop()
}
