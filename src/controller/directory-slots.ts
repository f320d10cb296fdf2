import type { ResourceRef } from './source/source.ts'

const TRY_AGAIN_MS = 5_000

/**
 * Places for calls that wait for a directory, so that one which does not answer never holds all workers: the Secrets of others must be
 * written meanwhile. Nobody waits in line here, for that would hold a worker too: who gets no place is looked at again when one is free.
 */
export class DirectorySlots {
  readonly #limits: { readonly perEngine: number; readonly total: number }
  readonly #enqueue: (ref: ResourceRef, options?: { readonly afterMs?: number }) => void
  readonly #used = new Map<string, number>()
  readonly #turnedAway = new Map<string, { readonly engine: string; readonly ref: ResourceRef }>()
  #total = 0

  constructor(
    limits: { readonly perEngine: number; readonly total: number },
    enqueue: (ref: ResourceRef, options?: { readonly afterMs?: number }) => void,
  ) {
    this.#limits = limits
    this.#enqueue = enqueue
  }

  /** Runs the work of an object, or returns `busy` without running it. */
  async run<T>(engine: string, ref: ResourceRef, work: () => Promise<T>): Promise<T | 'busy'> {
    const key = `${ref.kind} ${ref.namespace}/${ref.name}`
    if (!this.#isFree(engine)) {
      this.#turnedAway.set(key, { engine, ref })
      this.#enqueue(ref, { afterMs: TRY_AGAIN_MS })
      return 'busy'
    }
    this.#turnedAway.delete(key)
    this.#count(engine, 1)
    try {
      return await work()
    } finally {
      this.#count(engine, -1)
      this.#wake()
    }
  }

  #isFree(engine: string): boolean {
    return this.#total < this.#limits.total && (this.#used.get(engine) ?? 0) < this.#limits.perEngine
  }

  #count(engine: string, change: 1 | -1): void {
    this.#total += change
    const used = (this.#used.get(engine) ?? 0) + change
    if (used === 0) this.#used.delete(engine)
    else this.#used.set(engine, used)
  }

  #wake(): void {
    for (const [key, { engine, ref }] of this.#turnedAway) {
      if (!this.#isFree(engine)) continue
      this.#turnedAway.delete(key)
      this.#enqueue(ref)
      return
    }
  }
}
