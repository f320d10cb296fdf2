import type { ServerResponse } from 'node:http'
import type { Clock } from '../lib/clock.ts'
import { unavailable } from '../lib/errors.ts'

interface Asked {
  readonly controller: AbortController
  readonly endsAtMs: number
  /** Whether it only waits for news: a stopping server, and a client that is gone, end it at once. */
  readonly waits: boolean
}

/**
 * What is being answered now. A client that goes away ends nothing but what only waits: work that touches a directory is finished whoever still
 * listens. Only the time limit and the end of the server abort it.
 */
export class Requests {
  readonly #asked = new Set<Asked>()
  readonly #open = new Set<ServerResponse>()
  readonly #clock: Clock
  readonly #limitMs: number
  #stopping = false
  #onIdle: (() => void) | undefined

  constructor(clock: Clock, limitMs: number) {
    this.#clock = clock
    this.#limitMs = limitMs
  }

  /** Counts a request from its head to the end of its answer. */
  opened(response: ServerResponse): void {
    this.#open.add(response)
    if (this.#stopping) response.setHeader('connection', 'close')
    response.once('close', () => {
      this.#open.delete(response)
      this.#settle()
    })
  }

  /** Runs the engine's part of a request under its time limit. */
  async run<T>(
    work: (signal: AbortSignal) => Promise<T>,
    { waits, gone }: { waits: boolean; gone: AbortSignal },
  ): Promise<T> {
    const asked = { controller: new AbortController(), endsAtMs: this.#clock.monotonicMs() + this.#limitMs, waits }
    this.#asked.add(asked)
    if (this.#stopping && waits) asked.controller.abort(unavailable('the server is stopping'))
    const abandon = waits ? () => asked.controller.abort(gone.reason) : undefined
    if (abandon) gone.addEventListener('abort', abandon)
    try {
      return await work(asked.controller.signal)
    } finally {
      if (abandon) gone.removeEventListener('abort', abandon)
      this.#asked.delete(asked)
      this.#settle()
    }
  }

  /** Aborts what has taken too long; asked every second rather than by a timer for each request. */
  abortLate(): void {
    const now = this.#clock.monotonicMs()
    for (const asked of this.#asked) {
      // In the order of their ends.
      if (asked.endsAtMs > now) return
      asked.controller.abort(unavailable('the request took too long'))
    }
  }

  /** Resolves when everything begun has ended; what only waits is told to end now, the rest after `limitMs`. */
  async drain(limitMs: number): Promise<void> {
    this.#stopping = true
    const stopping = unavailable('the server is stopping')
    for (const response of this.#open) if (!response.headersSent) response.setHeader('connection', 'close')
    for (const asked of this.#asked) if (asked.waits) asked.controller.abort(stopping)
    if (await this.#idleWithin(limitMs)) return
    for (const asked of this.#asked) asked.controller.abort(stopping)
    await this.#idleWithin(AFTER_ABORT_MS)
  }

  async #idleWithin(limitMs: number): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    this.#settle()
    const late = new AbortController()
    const slept = this.#clock.sleep(limitMs, late.signal).then(
      () => false,
      () => false,
    )
    const idle = await Promise.race([promise.then(() => true), slept])
    late.abort()
    return idle
  }

  #settle(): void {
    if (this.#open.size === 0 && this.#asked.size === 0) this.#onIdle?.()
  }
}

const AFTER_ABORT_MS = 2_000
