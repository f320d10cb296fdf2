import type { Server as HttpServer, IncomingMessage, ServerResponse } from 'node:http'
import type { Server as HttpsServer } from 'node:https'
import type { Socket } from 'node:net'
import { unavailable } from '../lib/errors.ts'
import type { BodyBudget } from './body-budget.ts'
import { ListVerb, type Piece } from './list-verb.ts'

/**
 * What stands between each socket and the HTTP parser: the filter for `LIST`, and a gate. A client may send requests without waiting for answers,
 * and Node's parser would begin them all; here no more of them are begun than `limit`, and what is sent beyond stays unread, in the end with the
 * client.
 *
 * The socket's own `push`, the one door through which bytes come from the network into a Node stream, is given the filter's bytes instead.
 * Cheaper than a stream around the socket, and the socket keeps its address and TLS state.
 */
export interface Intake {
  /** Counts a request until its answer is over. */
  opened(request: IncomingMessage, response: ServerResponse): void
  /** Aborted when the connection is over: nobody hears an answer any more. */
  goneOf(socket: Socket): AbortSignal
}

export function limitIntake(
  server: HttpServer | HttpsServer,
  { limit, bodies }: { readonly limit: number; readonly bodies: BodyBudget },
): Intake {
  const connections = new WeakMap<Socket, Connection>()
  const require = (socket: Socket): Connection => {
    const connection = connections.get(socket)
    if (!connection) throw new Error('a request came in by no connection')
    return connection
  }
  // After the server's own listener of the same event, which has attached the parser by then.
  server.on('setSecureContext' in server ? 'secureConnection' : 'connection', (socket: Socket) => {
    connections.set(socket, new Connection(socket, limit, bodies))
  })
  return {
    opened: (request, response) => require(request.socket).opened(response),
    goneOf: (socket) => require(socket).gone,
  }
}

class Connection {
  readonly #socket: Socket
  readonly #limit: number
  readonly #bodies: BodyBudget
  readonly #push: Socket['push']
  readonly #gone = new AbortController()
  #unanswered = 0
  /** What the parser has not been given yet. */
  #held: Piece[] = []
  #heldBytes = 0
  /** So much of it the budget knows of. */
  #counted = 0
  #hasEnded = false
  #isGiving = false

  constructor(socket: Socket, limit: number, bodies: BodyBudget) {
    this.#socket = socket
    this.#limit = limit
    this.#bodies = bodies
    const push = socket.push.bind(socket)
    this.#push = push
    const filter = new ListVerb()
    socket.push = (chunk: unknown, encoding?: BufferEncoding): boolean => {
      if (chunk !== null && !Buffer.isBuffer(chunk)) return push(chunk, encoding)
      const pieces = chunk ? filter.push(chunk) : [{ bytes: filter.end(), begins: false }]
      for (const piece of pieces) this.#hold(piece)
      this.#hasEnded = chunk === null
      return this.#give()
    }
    // Node's parser reads a socket past its stream until somebody else listens for its data.
    socket.on('data', () => this.#give())
    // The parser stops the socket while answers or bodies wait to be taken.
    socket.on('resume', () => this.#give())
    socket.once('close', () => {
      this.#held = []
      this.#heldBytes = 0
      this.#count()
      this.#gone.abort(unavailable('the client is gone'))
    })
  }

  get gone(): AbortSignal {
    return this.#gone.signal
  }

  opened(response: ServerResponse): void {
    this.#unanswered += 1
    // Only where the filter could not tell where requests begin.
    if (this.#unanswered > this.#limit) this.#socket.destroy()
    response.once('close', () => {
      this.#unanswered -= 1
      this.#give()
    })
  }

  /** Gives the parser what it may have. False when something is left: the socket is read again once that is given. */
  #give(): boolean {
    if (this.#isGiving) return this.#held.length === 0
    this.#isGiving = true
    let wantsMore = true
    for (let piece = this.#held[0]; piece && this.#mayGive(piece); piece = this.#held[0]) {
      this.#held.shift()
      this.#heldBytes -= piece.bytes.length
      wantsMore = this.#push(piece.bytes)
    }
    this.#isGiving = false
    if (this.#held.length === 0 && this.#hasEnded) {
      this.#hasEnded = false
      wantsMore = this.#push(null)
    }
    this.#count()
    return this.#held.length === 0 && wantsMore
  }

  #mayGive({ begins }: Piece): boolean {
    if (this.#socket.isPaused() || this.#socket.readableLength > 0) return false
    return !begins || this.#unanswered < this.#limit
  }

  #hold(piece: Piece): void {
    if (piece.bytes.length === 0) return
    this.#held.push(piece)
    this.#heldBytes += piece.bytes.length
  }

  #count(): void {
    if (this.#heldBytes === this.#counted) return
    if (!this.#bodies.take(this.#heldBytes - this.#counted)) return void this.#socket.destroy()
    this.#counted = this.#heldBytes
  }
}
