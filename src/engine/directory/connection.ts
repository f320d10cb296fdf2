import type net from 'node:net'
import {
  Attribute,
  Change,
  Client,
  type Entry as LdapEntry,
  ResultCodeError,
  SearchRequest as WireSearch,
} from 'ldapts'
import { messageOf } from '../../lib/errors.ts'
import type { AttributeChange, BindIdentity, DirectorySettings, Entry, SearchRequest, Session } from './directory.ts'
import { DirectoryError, fromResultCode } from './errors.ts'
import { requireAttribute } from './filter.ts'

/**
 * One connection to one server, used for one request at a time. It goes round the faults of ldapts: the socket is handed over once and never
 * replaced; after the first failure that is not the server's answer the connection is broken for good; every request has a time limit; a search
 * really sends its dereferencing mode and time limit; values are octets.
 */
export interface Connection extends Session {
  /** False after a failure or when either side closed it. */
  readonly isUsable: boolean
  bind(identity: BindIdentity): Promise<void>
  close(): void
  /** Ends it at once, with whatever is under way on it. */
  abort(): void
}

const DEREFERENCE = { never: 'never', finding: 'find', searching: 'search', always: 'always' } as const
const SIZE_LIMIT_EXCEEDED = 4

export function createConnection(socket: net.Socket, server: string, settings: DirectorySettings): Connection {
  let handedOver = false
  let broken = false
  socket.once('close', () => {
    broken = true
  })
  const client = new Client({
    url: 'ldap://handed.over',
    timeout: settings.requestTimeoutMs,
    strictDN: false,
    // ldapts would open another connection by itself, in the clear and unbound.
    createConnection: () => {
      if (handedOver) throw new Error('the connection was lost')
      handedOver = true
      return socket
    },
  })
  dereference(client, DEREFERENCE[settings.dereferenceAliases])

  async function attempt<T>(operation: 'bind' | 'search' | 'modify', work: () => Promise<T>): Promise<T> {
    if (broken || (handedOver && !client.isConnected))
      throw new DirectoryError('unavailable', `the connection to ${server} is closed`, { server })
    try {
      return await work()
    } catch (error) {
      if (error instanceof DirectoryError) throw error
      if (error instanceof ResultCodeError) throw fromResultCode(error.code, server, operation)
      // No answer of the server: time is over, the connection is lost, or what came is not LDAP. ldapts tells only by text.
      broken = true
      socket.destroy()
      const outcome = operation === 'modify' ? 'unknown-outcome' : 'unavailable'
      throw new DirectoryError(outcome, `${operation} at ${server}: no answer: ${messageOf(error).split('\n')[0]}`, {
        server,
        cause: error,
      })
    }
  }

  return {
    server,
    get isUsable() {
      return !broken && !socket.destroyed && socket.readable && socket.writable
    },
    bind: ({ name, password }) => attempt('bind', () => client.bind(name, password.reveal())),
    search: (request) =>
      attempt('search', async () => {
        const found = await search(client, request, settings, server)
        return found.map(entryOf)
      }),
    replace: (dn, changes) => attempt('modify', () => client.modify(dn, changes.map(changeOf))),
    abort() {
      broken = true
      socket.destroy()
    },
    close() {
      if (broken) return
      broken = true
      // Best effort: the server frees the connection at once instead of when it notices.
      client.unbind().catch(() => undefined)
      socket.end()
    },
  }
}

async function search(
  client: Client,
  request: SearchRequest,
  settings: DirectorySettings,
  server: string,
): Promise<LdapEntry[]> {
  const attributes = request.attributes.map(requireAttribute)
  const paged = settings.maxPageSize > 0 && request.scope !== 'base' && request.sizeLimit === undefined
  try {
    const { searchEntries } = await client.search(request.base, {
      scope: request.scope,
      filter: request.filter.wire,
      attributes,
      explicitBufferAttributes: attributes,
      timeLimit: Math.ceil(settings.requestTimeoutMs / 1000),
      ...(request.sizeLimit !== undefined && { sizeLimit: request.sizeLimit }),
      ...(paged && { paged: { pageSize: settings.maxPageSize } }),
    })
    return searchEntries
  } catch (error) {
    if (error instanceof ResultCodeError && error.code === SIZE_LIMIT_EXCEEDED && !paged)
      throw new DirectoryError('refused', `search at ${server}: more entries than its size limit; set max_page_size`, {
        server,
        resultCode: error.code,
      })
    throw error
  }
}

function changeOf({ attribute, values }: AttributeChange): Change {
  const modification = new Attribute({ type: requireAttribute(attribute), values: [...values] })
  return new Change({ operation: 'replace', modification })
}

function entryOf({ dn, ...values }: LdapEntry): Entry {
  const attributes = new Map<string, readonly Buffer[]>()
  for (const [name, value] of Object.entries(values)) {
    const list = Array.isArray(value) ? value : [value]
    const octets = list.map((item) => (typeof item === 'string' ? Buffer.from(item) : item))
    attributes.set(name.toLowerCase(), [...(attributes.get(name.toLowerCase()) ?? []), ...octets])
  }
  const all = (attribute: string) =>
    (attributes.get(attribute.toLowerCase()) ?? []).map((octets) => octets.toString('utf8'))
  return { dn, attributes, all, first: (attribute) => all(attribute)[0] }
}

/** ldapts takes the option and drops it (9.2): it is put back where the request is sent. */
function dereference(client: Client, mode: WireSearch['derefAliases']): void {
  if (mode === 'never') return
  // `_send` is private to ldapts; its shape is checked by the test that looks at what a server receives.
  const inner = client as unknown as { _send: (message: unknown) => unknown }
  const send = inner._send.bind(client)
  inner._send = (message) => {
    if (message instanceof WireSearch) message.derefAliases = mode
    return send(message)
  }
}
