import net from 'node:net'
import tls from 'node:tls'
import { BerReader } from 'ldapts'

/**
 * The smallest LDAP server: a test gets each request and writes whatever octets it likes, right or wrong. For what no real server does on demand.
 */
export interface ScriptedRequest {
  readonly id: number
  /** Tag of the operation: `OP.bind` and so on. */
  readonly op: number
  /** Of a search, in wire numbers. */
  readonly search?: {
    readonly base: string
    readonly deref: number
    readonly sizeLimit: number
    readonly timeLimit: number
  }
  readonly raw: Buffer
}
export interface ScriptedServer extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly requests: ScriptedRequest[]
  /** Connections accepted so far. */
  readonly accepted: number
  readonly open: ReadonlySet<net.Socket>
}
export type ScriptedHandler = (request: ScriptedRequest, socket: net.Socket, server: ScriptedServer) => void

export const OP = { bind: 0x60, unbind: 0x42, search: 0x63, modify: 0x66, extended: 0x77 } as const

export function tlv(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts)
  const length = body.length < 128 ? [body.length] : [0x82, body.length >> 8, body.length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...length]), body])
}
export const octets = (text: string, tag = 0x04) => tlv(tag, Buffer.from(text))
export const message = (id: number, ...parts: Buffer[]) => tlv(0x30, tlv(0x02, Buffer.from([id])), ...parts)
export const resultBody = (code: number, text = '') =>
  Buffer.concat([tlv(0x0a, Buffer.from([code])), octets(''), octets(text)])
/** The final answer to a request: its operation's tag is one above the request's (two for a search). */
export function answerTo(request: ScriptedRequest, code = 0, text = ''): Buffer {
  return message(request.id, tlv(request.op + (request.op === OP.search ? 2 : 1), resultBody(code, text)))
}
export function entry(id: number, dn: string, attributes: Record<string, (string | Buffer)[]> = {}): Buffer {
  const list = Object.entries(attributes).map(([name, values]) =>
    tlv(0x30, octets(name), tlv(0x31, ...values.map((value) => tlv(0x04, Buffer.from(value))))),
  )
  return message(id, tlv(0x64, octets(dn), tlv(0x30, ...list)))
}
/** Says yes to binds and modifies, and finds one entry. */
export const agreeable: ScriptedHandler = (request, socket) => {
  if (request.op === OP.unbind) return
  if (request.op === OP.search) socket.write(entry(request.id, 'cn=found,dc=x', { cn: ['found'] }))
  socket.write(answerTo(request))
}

export async function serveScripted(
  handler: ScriptedHandler,
  options: { readonly onConnect?: (socket: net.Socket) => void } = {},
): Promise<ScriptedServer> {
  const open = new Set<net.Socket>()
  const requests: ScriptedRequest[] = []
  let accepted = 0
  const server = net.createServer((socket) => {
    accepted += 1
    open.add(socket)
    socket.on('error', () => undefined).on('close', () => open.delete(socket))
    options.onConnect?.(socket)
    feed(socket, (request) => {
      requests.push(request)
      handler(request, socket, scripted)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  const scripted: ScriptedServer = {
    url: `ldap://127.0.0.1:${port}`,
    port,
    requests,
    open,
    get accepted() {
      return accepted
    },
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        for (const socket of open) socket.destroy()
        server.close(() => resolve())
      }),
  }
  return scripted
}

/** Answers StartTLS with success and `clear` in the same packet, then speaks TLS with the handler inside. */
export function startTlsScript(
  context: { readonly key: string; readonly cert: string },
  clear: Buffer,
  inside: (request: ScriptedRequest, socket: net.Socket) => void,
): ScriptedHandler {
  return (request, socket) => {
    if (request.op !== OP.extended) return
    socket.removeAllListeners('data')
    socket.write(Buffer.concat([answerTo(request), clear]))
    const secure = new tls.TLSSocket(socket, { isServer: true, ...context })
    secure.on('error', () => undefined)
    feed(secure, (request) => inside(request, secure))
  }
}

function feed(socket: net.Socket, onRequest: (request: ScriptedRequest) => void): void {
  let rest = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk])
    while (rest.length > 1) {
      const reader = new BerReader(rest)
      if (rest[0] !== 0x30 || reader.readSequence() === null || reader.remain < reader.length) return
      const end = reader.offset + reader.length
      const raw = rest.subarray(0, end)
      rest = rest.subarray(end)
      onRequest(read(reader, raw))
    }
  })
}

function read(reader: BerReader, raw: Buffer): ScriptedRequest {
  const id = reader.readInt() ?? 0
  const op = reader.readSequence() ?? 0
  if (op !== OP.search) return { id, op, raw }
  const base = reader.readString() ?? ''
  reader.readEnumeration()
  const deref = reader.readEnumeration() ?? -1
  const sizeLimit = reader.readInt() ?? -1
  return { id, op, raw, search: { base, deref, sizeLimit, timeLimit: reader.readInt() ?? -1 } }
}
