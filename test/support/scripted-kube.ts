import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { Clock } from '../../src/lib/clock.ts'
import { systemClock } from '../../src/lib/clock.ts'

export interface SeenRequest {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: string
}

/** Something that speaks like an API server and does exactly what a test tells it, faults included. */
export interface ScriptedKube extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly requests: SeenRequest[]
  /** How many connections were opened so far. */
  readonly connections: () => number
  /** Breaks every connection off. */
  dropConnections(): void
  /** What happens to each request; replaced by the test. */
  handle: (request: SeenRequest, response: ServerResponse) => void
}

export async function scriptedKube(
  options: { tls?: { key: string; cert: string }; port?: number } = {},
): Promise<ScriptedKube> {
  const sockets = new Set<Socket>()
  let opened = 0
  const listener = async (incoming: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = []
    for await (const chunk of incoming) chunks.push(chunk)
    const url = new URL(incoming.url ?? '/', 'http://scripted')
    const request = {
      method: incoming.method ?? '',
      path: url.pathname,
      query: url.searchParams,
      headers: incoming.headers,
      body: Buffer.concat(chunks).toString('utf8'),
    }
    scripted.requests.push(request)
    scripted.handle(request, response)
  }
  const server = options.tls ? createHttps(options.tls, listener) : createHttp(listener)
  server.on(options.tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    opened += 1
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined)
  })
  await new Promise<void>((done) => server.listen(options.port ?? 0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo // a server that listens on TCP has one
  const scripted: ScriptedKube = {
    url: `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    port,
    requests: [],
    connections: () => opened,
    dropConnections() {
      for (const socket of sockets) socket.destroy()
    },
    handle: (_, response) =>
      reply(response, 404, { kind: 'Status', code: 404, reason: 'NotFound', message: 'not scripted' }),
    async [Symbol.asyncDispose]() {
      scripted.dropConnections()
      await new Promise((done) => server.close(done))
    },
  }
  return scripted
}

export function reply(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

export function failure(
  response: ServerResponse,
  status: number,
  reason: string,
  headers: Record<string, string> = {},
): void {
  reply(
    response,
    status,
    { kind: 'Status', status: 'Failure', code: status, reason, message: `scripted ${reason}` },
    headers,
  )
}

/** A clock that runs `factor` times as fast as the real one, and keeps what was slept. */
export function fastClock(factor: number): Clock & { readonly slept: number[] } {
  const slept: number[] = []
  return {
    slept,
    now: () => systemClock.now(),
    monotonicMs: () => performance.now() * factor,
    sleep(ms, signal) {
      slept.push(ms)
      return systemClock.sleep(ms / factor, signal)
    },
  }
}
