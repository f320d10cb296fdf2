import { once } from 'node:events'
import { chmod, mkdir, rename, rm, stat } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { connect, type Socket } from 'node:net'
import path from 'node:path'
import type { Clock } from '../lib/clock.ts'
import { invalid, messageOf } from '../lib/errors.ts'
import type { Entrance, HttpHandler } from './app.ts'
import type { BodyBudget } from './body-budget.ts'
import type { TlsSource } from './certificate.ts'
import type { TrustedNetworks } from './client-address.ts'
import { limitIntake } from './intake.ts'
import type { Limits } from './limits.ts'
import { acceptProxied } from './proxy-protocol.ts'
import type { TlsPair } from './tls.ts'

/** Where to listen. Without `tls`, a TCP listener must be on loopback unless plain HTTP is asked for by name. */
export type Listener =
  | {
      readonly kind: 'tcp'
      readonly host: string
      readonly port: number
      readonly tls?: TlsSource
      readonly allowPlainHttp?: boolean
    }
  | { readonly kind: 'unix'; readonly path: string; readonly mode: number }

export interface Listening {
  /** `https://127.0.0.1:8200` or `unix:/run/keyturn.sock`. */
  readonly address: string
  readonly server: http.Server | https.Server
  /** Stops accepting; idle connections end. */
  stopAccepting(): void
  /** Closes what is still open. */
  [Symbol.asyncDispose](): Promise<void>
}

export interface ListenDeps {
  readonly handler: HttpHandler
  readonly limits: Limits
  readonly clock: Clock
  /** One for all listeners. */
  readonly bodies: BodyBudget
  /** Networks whose PROXY headers are read; none: the protocol is off. */
  readonly proxied: TrustedNetworks | undefined
}

/** Throws `invalid` for a listener that would show secrets in clear text to a network. */
export function requireSafe(listener: Listener): void {
  if (listener.kind === 'unix' || listener.tls || listener.allowPlainHttp || isLoopback(listener.host)) return
  throw invalid(
    `refusing plain HTTP on ${listener.host}:${listener.port}: give a certificate, listen on loopback, or allow plain HTTP by name`,
  )
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

export async function listen(listener: Listener, pair: TlsPair | undefined, deps: ListenDeps): Promise<Listening> {
  const { limits } = deps
  const options = {
    maxHeaderSize: limits.headBytes,
    headersTimeout: limits.headMs,
    requestTimeout: limits.receiveMs,
    connectionsCheckingInterval: limits.checkMs,
    keepAliveTimeout: limits.keepAliveMs,
    requireHostHeader: false,
  }
  const handle = (request: http.IncomingMessage, response: http.ServerResponse) => {
    intake.opened(request, response)
    deps.bodies.watch(request, response)
    onRequest(request, response)
  }
  const server = pair
    ? https.createServer({ ...options, ...pair, handshakeTimeout: limits.headMs, ALPNProtocols: ['http/1.1'] }, handle)
    : http.createServer(options, handle)
  server.timeout = limits.silentMs
  server.maxConnections = limits.connections
  server.on('clientError', refuseMalformed)
  server.on('checkExpectation', handle)
  const intake = limitIntake(server, { limit: limits.pipelined, bodies: deps.bodies })
  const proxy =
    deps.proxied && listener.kind === 'tcp'
      ? acceptProxied(server, { trusted: deps.proxied, limitMs: limits.headMs, clock: deps.clock })
      : undefined
  const entrance: Entrance = {
    transport: listener.kind,
    peerOf: (socket) => proxy?.sourceOf(socket) ?? socket.remoteAddress ?? '',
    // A balancer that names nobody speaks for itself, and what follows is not its word.
    mayForward: (socket) => proxy === undefined || proxy.sourceOf(socket) !== undefined,
    goneOf: intake.goneOf,
  }
  const onRequest = deps.handler(entrance)
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })

  const address = listener.kind === 'tcp' ? await listenTcp(server, listener, pair) : await listenUnix(server, listener)
  const inode = listener.kind === 'unix' ? await inodeOf(listener.path) : undefined
  return {
    address,
    server,
    stopAccepting() {
      server.close()
      server.closeIdleConnections()
    },
    async [Symbol.asyncDispose]() {
      const closed = server.listening ? once(server, 'close') : undefined
      server.close()
      server.closeAllConnections()
      for (const socket of sockets) socket.destroy()
      await closed
      // By now the name may be a successor's.
      if (listener.kind === 'unix' && (await inodeOf(listener.path)) === inode) await rm(listener.path, { force: true })
    },
  }
}

async function listenTcp(
  server: http.Server | https.Server,
  { host, port }: { host: string; port: number },
  pair: TlsPair | undefined,
): Promise<string> {
  await started(server, () => server.listen({ host, port }), `${host}:${port}`)
  const bound = server.address()
  const used = typeof bound === 'object' && bound !== null ? bound.port : port
  return `${pair ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${used}`
}

/** The socket appears under its name only once nobody but its owner can open it. */
async function listenUnix(
  server: http.Server | https.Server,
  { path: socketPath, mode }: { path: string; mode: number },
): Promise<string> {
  await mkdir(path.dirname(socketPath), { recursive: true, mode: 0o700 })
  if (await answers(socketPath)) throw invalid(`another server listens on ${socketPath}`)
  const found = await stat(socketPath).catch(() => undefined)
  if (found && !found.isSocket()) throw invalid(`${socketPath} is there and is no socket`)
  const fresh = `${socketPath}.new`
  await rm(fresh, { force: true })
  const listenAlone = () => {
    const before = process.umask(0o177)
    server.listen({ path: fresh })
    process.umask(before)
  }
  await started(server, listenAlone, socketPath)
  await chmod(fresh, mode)
  await rename(fresh, socketPath)
  return `unix:${socketPath}`
}

async function started(server: http.Server | https.Server, begin: () => void, where: string): Promise<void> {
  const listening = once(server, 'listening')
  begin()
  try {
    await listening
  } catch (cause) {
    throw invalid(`cannot listen on ${where}: ${messageOf(cause)}`, { cause })
  }
}

async function inodeOf(file: string): Promise<number | undefined> {
  return (await stat(file).catch(() => undefined))?.ino
}

function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(socketPath)
    probe.once('connect', () => {
      probe.destroy()
      resolve(true)
    })
    probe.once('error', () => resolve(false))
  })
}

const MALFORMED: Record<string, [status: string, text: string]> = {
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'the head of the request is too large'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'the request did not come in time'],
}

/** What is no HTTP gets an answer too, as JSON, if nothing of another answer is on the wire; what failed below HTTP could not be given one. */
function refuseMalformed(error: Error & { code?: string }, socket: Parameters<http.Server['emit']>[1]): void {
  const isHttp = /^(HPE|ERR_HTTP)_/.test(error.code ?? '')
  if (!isHttp || !socket.writable || socket.bytesWritten > 0) return void socket.destroy()
  const [status, text] = MALFORMED[error.code ?? ''] ?? ['400 Bad Request', 'the request is no valid HTTP']
  const body = JSON.stringify({ errors: [text] })
  const head = `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n`
  socket.end(`${head}Content-Length: ${body.length}\r\n\r\n${body}`, () => socket.destroy())
}
