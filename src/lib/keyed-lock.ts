/** Runs work one at a time per key, in the order it was asked for; different keys never wait for each other. */
export class KeyedLock {
  readonly #tails = new Map<string, Promise<void>>()

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key)
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#tails.set(key, promise)
    try {
      await before
      return await work()
    } finally {
      if (this.#tails.get(key) === promise) this.#tails.delete(key)
      resolve()
    }
  }
}
