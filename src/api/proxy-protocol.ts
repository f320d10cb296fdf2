import { isIP, type Server, type Socket } from 'node:net'
import type { Clock } from '../lib/clock.ts'
import { plainAddress, type TrustedNetworks } from './client-address.ts'

/**
 * The PROXY protocol, versions 1 and 2: a load balancer that only passes bytes on says first, before TLS, for whom it does. Believed from
 * trusted networks alone, where the header must be there; from everybody else no header is expected, and one is simply no HTTP.
 */
export type Header =
  | { readonly kind: 'incomplete' }
  | { readonly kind: 'invalid' }
  /** `source` is absent when the balancer asks for itself, as its health checks do. */
  | { readonly kind: 'header'; readonly source?: string; readonly bytes: number }

const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1')
// Longest line of version 1, with its line end.
const LONGEST_LINE = 107
// Addresses and the extensions that balancers add; more is nonsense.
const LONGEST_V2 = 4096

/** Reads the header at the start of `bytes`. */
export function readHeader(bytes: Buffer): Header {
  const compared = Math.min(bytes.length, SIGNATURE.length)
  if (bytes.subarray(0, compared).equals(SIGNATURE.subarray(0, compared)))
    return bytes.length < 16 ? { kind: 'incomplete' } : readVersion2(bytes)
  return readVersion1(bytes)
}

function readVersion1(bytes: Buffer): Header {
  const start = 'PROXY '
  const text = bytes.toString('latin1', 0, LONGEST_LINE)
  if (!text.startsWith(start.slice(0, text.length))) return { kind: 'invalid' }
  const end = text.indexOf('\r\n')
  if (end < 0) return { kind: text.length < LONGEST_LINE ? 'incomplete' : 'invalid' }
  const [, family, source = '', , fromPort = '', toPort = '', ...rest] = text.slice(0, end).split(' ')
  if (family === 'UNKNOWN') return { kind: 'header', bytes: end + 2 }
  const version = family === 'TCP4' ? 4 : family === 'TCP6' ? 6 : undefined
  const isPort = (port: string) => /^\d{1,5}$/.test(port) && Number(port) <= 65_535
  if (isIP(source) !== version || source.includes('%') || !isPort(fromPort) || !isPort(toPort) || rest.length > 0)
    return { kind: 'invalid' }
  return { kind: 'header', source: plainAddress(source), bytes: end + 2 }
}

function readVersion2(bytes: Buffer): Header {
  const command = bytes.readUInt8(12)
  const family = bytes.readUInt8(13)
  const length = bytes.readUInt16BE(14)
  if (command >> 4 !== 2 || (command & 15) > 1 || length > LONGEST_V2) return { kind: 'invalid' }
  if (bytes.length < 16 + length) return { kind: 'incomplete' }
  const header = { kind: 'header', bytes: 16 + length } as const
  if ((command & 15) === 0) return header
  if (family >> 4 === 1) {
    if (length < 12) return { kind: 'invalid' }
    return { ...header, source: bytes.subarray(16, 20).join('.') }
  }
  if (family >> 4 === 2) {
    if (length < 36) return { kind: 'invalid' }
    const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(16 + 2 * i).toString(16))
    const mapped = groups.slice(0, 6).join(':') === '0:0:0:0:0:ffff'
    return { ...header, source: mapped ? bytes.subarray(28, 32).join('.') : groups.join(':') }
  }
  return header
}

export interface ProxiedSources {
  /** The address that the balancer named for this connection, if it named one. */
  sourceOf(socket: Socket): string | undefined
}

/**
 * Makes the server read PROXY headers before anything else does (HTTP or TLS). Connections whose header is wrong, or late by `limitMs`,
 * are closed without an answer.
 */
export function acceptProxied(
  server: Server,
  { trusted, limitMs, clock }: { trusted: TrustedNetworks; limitMs: number; clock: Clock },
): ProxiedSources {
  // By peer address and port, which a TLS stream around the socket shares with it.
  const sources = new Map<string, string>()
  // Whoever handles connections now gets them once the header is off.
  const listeners = server.listeners('connection')
  server.removeAllListeners('connection')
  const handOver = (socket: Socket): void => {
    for (const listener of listeners) Reflect.apply(listener, server, [socket])
  }
  server.on('connection', (socket: Socket) => {
    if (!trusted.has(plainAddress(socket.remoteAddress ?? ''))) return handOver(socket)
    const done = new AbortController()
    clock.sleep(limitMs, done.signal).then(
      () => socket.destroy(),
      () => undefined,
    )
    socket.once('close', () => done.abort())
    const abandon = () => socket.destroy()
    socket.on('error', abandon)
    const push = socket.push
    let seen = Buffer.alloc(0)
    socket.push = (chunk: unknown): boolean => {
      if (!Buffer.isBuffer(chunk)) {
        socket.destroy()
        return false
      }
      seen = Buffer.concat([seen, chunk])
      const header = readHeader(seen)
      if (header.kind === 'incomplete') return true
      socket.push = push
      if (header.kind === 'invalid') {
        socket.destroy()
        return false
      }
      done.abort()
      if (header.source !== undefined) {
        const key = peerOf(socket)
        sources.set(key, header.source)
        socket.once('close', () => sources.delete(key))
      }
      const rest = seen.subarray(header.bytes)
      // TLS takes what waits in the socket's buffer when it wraps the socket; the LIST filter is put on by then, so HTTP takes it after.
      return receiveRest(server, socket, rest, () => {
        socket.off('error', abandon)
        handOver(socket)
      })
    }
  })
  return { sourceOf: (socket) => sources.get(peerOf(socket)) }
}

function receiveRest(server: Server, socket: Socket, rest: Buffer, handOver: () => void): boolean {
  if ('setSecureContext' in server) {
    const more = rest.length === 0 || socket.push(rest)
    handOver()
    return more
  }
  handOver()
  return rest.length === 0 || socket.push(rest)
}

function peerOf(socket: Socket): string {
  return `${socket.remoteAddress} ${socket.remotePort}`
}
