import type { Clock } from '../../lib/clock.ts'

interface Entry<T> {
  readonly key: string
  readonly value: T
  /** On the wall clock (`at`) or the monotonic one (`after`). */
  readonly kind: 'at' | 'after'
  readonly ms: number
}

// A longer sleep would be blind to a machine that was suspended, and Node's timers end at 24.8 days.
const LONGEST_SLEEP_MS = 60_000

/** Keys that come due: at an instant of the wall clock, or after a while by the monotonic one. One entry a key, the sooner one. */
export class DelayedKeys<T> {
  readonly #clock: Clock
  readonly #due: (key: string, value: T) => void
  readonly #entries = new Map<string, Entry<T>>()
  #wake: AbortController | undefined
  /** The monotonic time at which the loop looks next. */
  #looksAtMs = 0

  constructor(clock: Clock, due: (key: string, value: T) => void) {
    this.#clock = clock
    this.#due = due
  }

  get size(): number {
    return this.#entries.size
  }

  addAfter(key: string, ms: number, value: T): void {
    this.#add({ key, value, kind: 'after', ms: this.#clock.monotonicMs() + Math.max(0, ms) })
  }

  addAt(key: string, at: Date, value: T): void {
    this.#add({ key, value, kind: 'at', ms: at.getTime() })
  }

  drop(key: string): void {
    this.#entries.delete(key)
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      let nextMs = LONGEST_SLEEP_MS
      for (const entry of [...this.#entries.values()]) {
        const leftMs = this.#leftMs(entry)
        if (leftMs > 0) {
          nextMs = Math.min(nextMs, leftMs)
          continue
        }
        this.#entries.delete(entry.key)
        this.#due(entry.key, entry.value)
      }
      this.#wake = new AbortController()
      this.#looksAtMs = this.#clock.monotonicMs() + nextMs
      await this.#clock.sleep(nextMs, AbortSignal.any([signal, this.#wake.signal])).catch(() => undefined)
    }
  }

  #add(entry: Entry<T>): void {
    const before = this.#entries.get(entry.key)
    const leftMs = this.#leftMs(entry)
    if (before && this.#leftMs(before) <= leftMs) return
    this.#entries.set(entry.key, entry)
    if (this.#clock.monotonicMs() + leftMs < this.#looksAtMs) this.#wake?.abort()
  }

  #leftMs({ kind, ms }: Entry<T>): number {
    return ms - (kind === 'at' ? this.#clock.now().getTime() : this.#clock.monotonicMs())
  }
}
