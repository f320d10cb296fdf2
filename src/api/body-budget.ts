import type { IncomingMessage } from 'node:http'

/** Of each body so much is free: nobody who sends large ones can keep out those who send what requests usually are. */
const FREE_BYTES = 64 * 1024

/**
 * What all bodies under way may hold in memory together. A body is received before its token is looked at, so that without this limit anybody
 * could fill the memory with a few connections. Counted is what has come, not what was announced.
 */
export class BodyBudget {
  #left: number

  constructor(bytes: number) {
    this.#left = bytes
  }

  /** Counts the body of a request until its answer is over; ends the connection of one for which nothing is left. */
  watch(request: IncomingMessage, response: { once(event: 'close', over: () => void): unknown }): void {
    const { 'content-length': length, 'transfer-encoding': coding } = request.headers
    if (coding === undefined && !(Number(length) > FREE_BYTES)) return
    let came = 0
    let taken = 0
    const push = request.push.bind(request)
    request.push = (chunk: unknown, encoding?: BufferEncoding): boolean => {
      came += Buffer.isBuffer(chunk) ? chunk.length : 0
      const more = Math.max(0, came - FREE_BYTES) - taken
      if (more > this.#left) {
        request.socket.destroy()
        return false
      }
      this.#left -= more
      taken += more
      return push(chunk, encoding)
    }
    response.once('close', () => {
      this.#left += taken
      taken = 0
      // What still comes after the answer is not kept.
      request.push = push
    })
  }
}
