import type { IncomingMessage } from 'node:http'

/** Up to here a body is like most: who sends larger ones cannot keep these out. */
const FIRST_BYTES = 64 * 1024
/** Their share of the whole. */
const FIRST_SHARE = 1 / 4

/**
 * What all bodies under way may hold in memory together. A body is received before its token is looked at, so that without this limit anybody
 * could fill the memory with a few connections. Counted is what has come, not what was announced.
 */
export class BodyBudget {
  /** Left for the beginnings of bodies, and for what comes after these. */
  #firstLeft: number
  #restLeft: number

  constructor(bytes: number) {
    this.#firstLeft = bytes * FIRST_SHARE
    this.#restLeft = bytes - this.#firstLeft
  }

  /** Counts octets that wait to be read; false where nothing is left for them. A negative number gives them back. */
  take(bytes: number): boolean {
    if (bytes > this.#firstLeft) return false
    this.#firstLeft -= bytes
    return true
  }

  /** Counts the body of a request until its answer is over; ends the connection of one for which nothing is left. */
  watch(request: IncomingMessage, response: { once(event: 'close', over: () => void): unknown }): void {
    const { 'content-length': length, 'transfer-encoding': coding } = request.headers
    if (coding === undefined && (length === undefined || length === '0')) return
    let came = 0
    let first = 0
    let rest = 0
    const push = request.push.bind(request)
    const giveBack = () => {
      this.take(-first)
      this.#restLeft += rest
      first = rest = 0
    }
    request.push = (chunk: unknown, encoding?: BufferEncoding): boolean => {
      came += Buffer.isBuffer(chunk) ? chunk.length : 0
      const moreFirst = Math.min(came, FIRST_BYTES) - first
      const moreRest = Math.max(0, came - FIRST_BYTES) - rest
      if (moreRest > this.#restLeft || !this.take(moreFirst)) {
        request.socket.destroy()
        // At once, or all that come in this turn of the event loop would go the same way.
        giveBack()
        request.push = () => false
        return false
      }
      this.#restLeft -= moreRest
      first += moreFirst
      rest += moreRest
      return push(chunk, encoding)
    }
    response.once('close', () => {
      giveBack()
      // What still comes after the answer is not kept.
      request.push = push
    })
  }
}
