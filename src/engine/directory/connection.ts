import type net from 'node:net'
import { messageOf } from '../../lib/errors.ts'
import { BerError, elementSize } from './ber.ts'
import type { BindIdentity, DirectorySettings, Entry, SearchRequest, Session } from './directory.ts'
import { DirectoryError, fromResultCode } from './errors.ts'
import {
  type Answer,
  decodeAnswer,
  encodeBind,
  encodeReplace,
  encodeSearch,
  encodeUnbind,
  type FoundEntry,
  type Operation,
} from './message.ts'

/**
 * One connection to one server, used for one request at a time. It never opens another: after the first thing that is not the answer to what was
 * asked (silence, a closed socket, octets that are no LDAP) it is lost for good. Every request has a time limit, and its end says whether the
 * server may have got it.
 */
export interface Connection extends Session {
  /** False after a failure or when either side closed it. */
  readonly isUsable: boolean
  /** How it ended: `closed` by the server, `silent` beyond the time limit, `confused` by octets that are no answer, `ended` by us. */
  readonly lost: 'closed' | 'silent' | 'confused' | 'ended' | undefined
  bind(identity: BindIdentity): Promise<void>
  close(): void
  /** Ends it at once, with whatever is under way on it. */
  abort(): void
}

/** The last answer to a request and the entries before it. */
interface Outcome {
  readonly code: number
  readonly entries: readonly FoundEntry[]
  readonly cookie: Buffer | undefined
}

interface Waiting {
  readonly id: number
  readonly operation: Operation
  readonly entries: FoundEntry[]
  readonly mostEntries: number
  readonly done: (outcome: Outcome) => void
  readonly fail: (what: string, cause: unknown) => void
}

const SEQUENCE = 0x30
const SUCCESS = 0
const SIZE_LIMIT_EXCEEDED = 4
const LONGEST_MESSAGE = 16 * 1024 * 1024

export function createConnection(socket: net.Socket, server: string, settings: DirectorySettings): Connection {
  const { requestTimeoutMs, maxPageSize, dereferenceAliases } = settings
  // StartTLS was the first message where there was one.
  let lastId = 1
  let lost: Connection['lost']
  let waiting: Waiting | undefined
  let tail: Promise<unknown> = Promise.resolve()

  function lose(how: NonNullable<Connection['lost']>, what: string, cause?: unknown): void {
    if (lost !== undefined) return
    lost = how
    socket.destroy()
    waiting?.fail(what, cause)
  }

  function take(answer: Answer): void {
    if (!waiting || answer.id !== waiting.id) {
      // Message 0 announces the end of the connection (RFC 4511, 4.4.1).
      if (answer.id === 0) lose('closed', 'the server ends the connection')
      else lose('confused', 'the server answers what nobody asked')
      return
    }
    const { entries, mostEntries } = waiting
    // Who sends more than was asked for fills no memory with it; one more tells that there are more.
    if (answer.is === 'entry') {
      if (entries.length <= mostEntries) entries.push(answer.entry)
    } else if (answer.is === waiting.operation) waiting.done({ ...answer, entries: waiting.entries })
    else if (answer.is !== 'reference') lose('confused', 'the server answers something else')
  }

  const read = messageReader((message) => take(decodeAnswer(message)))
  socket.on('data', (chunk: Buffer) => {
    if (lost !== undefined) return
    try {
      read(chunk)
    } catch (error) {
      lose('confused', `what the server sends is not LDAP (${messageOf(error)})`, error)
    }
  })
  socket.on('error', (error) => lose('closed', error.message, error))
  socket.on('end', () => lose('closed', 'the server closed the connection'))
  socket.on('close', () => lose('closed', 'the server closed the connection'))
  // The handshake of StartTLS leaves the socket paused.
  socket.resume()

  /** Requests of one connection follow each other, also where the caller does not wait. */
  function exchange(
    operation: Operation,
    limitMs: number,
    encode: (id: number) => Buffer,
    mostEntries = Number.POSITIVE_INFINITY,
  ): Promise<Outcome> {
    const next = tail.then(() => ask(operation, limitMs, encode, mostEntries))
    tail = next.catch(() => undefined)
    return next
  }

  function ask(
    operation: Operation,
    limitMs: number,
    encode: (id: number) => Buffer,
    mostEntries: number,
  ): Promise<Outcome> {
    if (lost !== undefined || socket.destroyed)
      throw new DirectoryError('unavailable', `the connection to ${server} is closed`, { server })
    lastId += 1
    const id = lastId
    const message = encode(id)
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => lose('silent', `time is over (${limitMs / 1000} s)`), limitMs)
      const end = () => {
        clearTimeout(timer)
        waiting = undefined
      }
      waiting = {
        id,
        operation,
        entries: [],
        mostEntries,
        done(outcome) {
          end()
          resolve(outcome)
        },
        fail(what, cause) {
          end()
          const fate = operation === 'modify' ? 'unknown-outcome' : 'unavailable'
          reject(new DirectoryError(fate, `${operation} at ${server}: no answer: ${what}`, { server, cause }))
        },
      }
      socket.write(message)
    })
  }

  async function search(request: SearchRequest): Promise<Entry[]> {
    const isPaged = maxPageSize > 0 && request.scope !== 'base' && request.sizeLimit === undefined
    const endMs = performance.now() + requestTimeoutMs
    const entries: FoundEntry[] = []
    for (let cookie = Buffer.alloc(0); ; ) {
      const leftMs = Math.max(1, Math.ceil(endMs - performance.now()))
      const page = isPaged ? { size: maxPageSize, cookie } : undefined
      const options = { timeLimitSeconds: Math.ceil(requestTimeoutMs / 1000), dereferenceAliases, page }
      const encode = (id: number) => encodeSearch(id, request, options)
      const outcome = await exchange('search', leftMs, encode, request.sizeLimit)
      entries.push(...outcome.entries)
      const isCut = outcome.code === SIZE_LIMIT_EXCEEDED
      if (isCut && request.sizeLimit === undefined)
        throw new DirectoryError(
          'refused',
          `search at ${server}: more entries than its size limit; set max_page_size`,
          {
            server,
            resultCode: outcome.code,
          },
        )
      if (outcome.code !== SUCCESS && !isCut) throw fromResultCode(outcome.code, server, 'search')
      if (!page || !outcome.cookie?.length) return entries.map(entryOf)
      cookie = Buffer.from(outcome.cookie)
    }
  }

  return {
    server,
    get isUsable() {
      return lost === undefined && !socket.destroyed && socket.readable && socket.writable
    },
    get lost() {
      return lost
    },
    async bind({ name, password }) {
      const { code } = await exchange('bind', requestTimeoutMs, (id) => encodeBind(id, name, password))
      if (code !== SUCCESS) throw fromResultCode(code, server, 'bind')
    },
    search,
    async replace(dn, changes) {
      const { code } = await exchange('modify', requestTimeoutMs, (id) => encodeReplace(id, dn, changes))
      if (code !== SUCCESS) throw fromResultCode(code, server, 'modify')
    },
    abort: () => lose('ended', 'given up'),
    close() {
      if (lost !== undefined) return
      lost = 'ended'
      // Best effort: the server frees the connection at once instead of when it notices.
      socket.write(encodeUnbind(lastId + 1))
      socket.destroySoon()
    },
  }
}

/** Puts messages together from chunks; what is incomplete waits. Throws `BerError` where no message can begin. */
function messageReader(onMessage: (message: Buffer) => void): (chunk: Buffer) => void {
  let chunks: Buffer[] = []
  let held = 0
  let needed = 2
  return (chunk) => {
    chunks.push(chunk)
    held += chunk.length
    if (held < needed) return
    let rest = chunks.length === 1 ? chunk : Buffer.concat(chunks)
    for (;;) {
      if (rest[0] !== undefined && rest[0] !== SEQUENCE) throw new BerError('no message begins like this')
      const size = elementSize(rest, LONGEST_MESSAGE)
      needed = size ?? rest.length + 1
      if (rest.length < needed) break
      onMessage(rest.subarray(0, needed))
      rest = rest.subarray(needed)
    }
    chunks = rest.length === 0 ? [] : [rest]
    held = rest.length
  }
}

function entryOf({ dn, attributes: found }: FoundEntry): Entry {
  const attributes = new Map<string, readonly Buffer[]>()
  for (const { name, values } of found) {
    const key = name.toLowerCase()
    attributes.set(key, [...(attributes.get(key) ?? []), ...values])
  }
  const all = (attribute: string) =>
    (attributes.get(attribute.toLowerCase()) ?? []).map((octets) => octets.toString('utf8'))
  return { dn, attributes, all, first: (attribute) => all(attribute)[0] }
}
