import { backoffMs } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import type { Random } from '../../lib/random.ts'
import { DelayedKeys } from './delayed-keys.ts'

/** Who goes first: 1 what a user changed or never saw done, 2 what is due, 3 what is only looked at again. */
export type Priority = 1 | 2 | 3

const PRIORITIES = [1, 2, 3] as const
const BACKOFF = { firstMs: 1_000, limitMs: 300_000, jitter: 0.5 }

/**
 * Keys that wait to be worked on. A key stands in it once, however often it is added; while it is worked on it is never given
 * to a second worker, and what is added meanwhile comes after. Within a priority namespaces take turns, so that one with a
 * thousand objects does not keep the others waiting. Taking a key forgets its delay: whoever works on it names the next one.
 */
export class WorkQueue {
  readonly #random: Random
  readonly #groupOf: (key: string) => string
  /** For each priority: group → its waiting keys. The first group is the next to be served. */
  readonly #waiting = new Map<Priority, Map<string, Set<string>>>(PRIORITIES.map((p) => [p, new Map()]))
  readonly #queued = new Map<string, Priority>()
  /** Keys being worked on, with the priority at which they were added again meanwhile. */
  readonly #working = new Map<string, Priority | undefined>()
  readonly #failures = new Map<string, number>()
  readonly #takers: ((key: string) => void)[] = []
  readonly #delayed: DelayedKeys<Priority>

  constructor(options: { readonly clock: Clock; readonly random: Random; readonly groupOf?: (key: string) => string }) {
    this.#random = options.random
    this.#groupOf = options.groupOf ?? namespaceOf
    this.#delayed = new DelayedKeys(options.clock, (key, priority) => this.add(key, priority))
  }

  /** How many keys wait for a worker now. */
  get depth(): number {
    return this.#queued.size
  }

  /** How many keys wait for their time. */
  get delayed(): number {
    return this.#delayed.size
  }

  add(key: string, priority: Priority = 1): void {
    if (this.#working.has(key)) {
      this.#working.set(key, sooner(this.#working.get(key), priority))
      return
    }
    const before = this.#queued.get(key)
    if (before !== undefined && before <= priority) return
    const taker = this.#takers.shift()
    if (taker) {
      this.#start(key)
      taker(key)
      return
    }
    if (before !== undefined) this.#unlist(key, before)
    this.#queued.set(key, priority)
    const groups = this.#groups(priority)
    const group = this.#groupOf(key)
    const keys = groups.get(group)
    if (keys) keys.add(key)
    else groups.set(group, new Set([key]))
  }

  /** Adds the key after a while, measured by a clock that never jumps. The sooner of two delays holds. */
  addAfter(key: string, ms: number, priority: Priority = 2): void {
    this.#delayed.addAfter(key, ms, priority)
  }

  /** Adds the key at an instant, also when the machine slept through it. The sooner of two delays holds. */
  addAt(key: string, at: Date, priority: Priority = 2): void {
    this.#delayed.addAt(key, at, priority)
  }

  /** Adds the key again after a failure: 1 s, doubling up to 5 min, ±50 %. Returns the wait. */
  retry(key: string, priority: Priority = 2): number {
    const failures = (this.#failures.get(key) ?? 0) + 1
    this.#failures.set(key, failures)
    const waitMs = backoffMs(failures, BACKOFF, this.#random)
    this.addAfter(key, waitMs, priority)
    return waitMs
  }

  /** The key succeeded: its next failure waits 1 s again. */
  forget(key: string): void {
    this.#failures.delete(key)
  }

  /** The next key, when there is one; `undefined` when `signal` aborts first. The taker must call `done`. */
  async take(signal: AbortSignal): Promise<string | undefined> {
    if (signal.aborted) return undefined
    const key = this.#next()
    if (key !== undefined) {
      this.#start(key)
      return key
    }
    return new Promise((resolve) => {
      const abort = () => {
        this.#takers.splice(this.#takers.indexOf(taker), 1)
        resolve(undefined)
      }
      const taker = (found: string) => {
        signal.removeEventListener('abort', abort)
        resolve(found)
      }
      this.#takers.push(taker)
      signal.addEventListener('abort', abort, { once: true })
    })
  }

  done(key: string): void {
    const again = this.#working.get(key)
    this.#working.delete(key)
    if (again !== undefined) this.add(key, again)
  }

  /** Runs the delays; until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await this.#delayed.run(signal)
  }

  #start(key: string): void {
    this.#working.set(key, undefined)
    this.#delayed.drop(key)
  }

  #next(): string | undefined {
    for (const priority of PRIORITIES) {
      for (const [group, keys] of this.#groups(priority)) {
        for (const key of keys) {
          this.#unlist(key, priority)
          // To the end of the line with the group.
          const rest = this.#groups(priority).get(group)
          if (rest) {
            this.#groups(priority).delete(group)
            this.#groups(priority).set(group, rest)
          }
          return key
        }
      }
    }
    return undefined
  }

  #unlist(key: string, priority: Priority): void {
    this.#queued.delete(key)
    const group = this.#groupOf(key)
    const keys = this.#groups(priority).get(group)
    keys?.delete(key)
    if (keys?.size === 0) this.#groups(priority).delete(group)
  }

  #groups(priority: Priority): Map<string, Set<string>> {
    const groups = this.#waiting.get(priority)
    if (!groups) throw new Error(`no priority ${priority}`)
    return groups
  }
}

function sooner(a: Priority | undefined, b: Priority): Priority {
  return a !== undefined && a < b ? a : b
}

/** Keys are `…namespace/name`; cluster-scoped ones share a group. */
function namespaceOf(key: string): string {
  const slash = key.lastIndexOf('/')
  return slash < 0 ? '' : key.slice(0, slash)
}
