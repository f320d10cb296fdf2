/** Lets at most `limit` callers in at once, in the order they came. */
export class Gate {
  #free: number
  readonly #waiting: (() => void)[] = []
  constructor(limit: number) {
    this.#free = limit
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1
    else await new Promise<void>((enter) => this.#waiting.push(enter))
    try {
      return await work()
    } finally {
      // The place goes straight to the next one; nobody who comes now can take it first.
      const next = this.#waiting.shift()
      if (next) next()
      else this.#free += 1
    }
  }
}
