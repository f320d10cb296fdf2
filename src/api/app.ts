import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { EngineDoor } from '../engine/request.ts'
import { AppError } from '../lib/errors.ts'
import type { Logger } from '../lib/log.ts'
import type { Random } from '../lib/random.ts'
import { clientAddress, type TrustedNetworks } from './client-address.ts'
import { decode } from './decode.ts'
import { encode, type Reply } from './encode.ts'
import { errorReply, HttpRefusal } from './errors.ts'
import type { Limits } from './limits.ts'
import type { Requests } from './requests.ts'

/** Where a request came in. */
export interface Entrance {
  readonly transport: 'tcp' | 'unix'
  readonly peerOf: (socket: Socket) => string
  /** Whether what the client says of itself (`X-Forwarded-For`) comes from whom `peerOf` names. */
  readonly mayForward: (socket: Socket) => boolean
  /** Aborted when the connection is over. */
  readonly goneOf: (socket: Socket) => AbortSignal
}

export interface AppDeps {
  readonly engine: EngineDoor
  readonly log: Logger
  readonly random: Random
  readonly limits: Limits
  readonly trusted: TrustedNetworks
  readonly requests: Requests
}

export type HttpHandler = (entrance: Entrance) => (request: IncomingMessage, response: ServerResponse) => void

/**
 * The way of one HTTP request: Fastify reads it, `decode` says what it asks, the engine answers, `encode` lays the answer out. Routing is the
 * engine's: to Fastify everything is one path.
 */
export async function createApp(deps: AppDeps): Promise<HttpHandler> {
  const { engine, log, random, limits, trusted, requests } = deps
  const arrivals = new WeakMap<IncomingMessage, { entrance: Entrance; contentType: string | undefined }>()
  const app = fastify({
    logger: false,
    bodyLimit: limits.bodyBytes,
    exposeHeadRoutes: false,
    requestIdHeader: false,
    genReqId: () => random.uuid(),
    rewriteUrl: () => '/',
    routerOptions: { querystringParser: () => ({}) },
  })
  app.addHttpMethod('LINK')
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))

  const answer = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const arrival = arrivals.get(request.raw)
    if (!arrival) throw new Error('a request came in by no listener')
    const { entrance, contentType } = arrival
    if (contentType !== undefined) request.raw.headers['content-type'] = contentType
    const asked = decode(
      {
        method: request.raw.method ?? '',
        url: request.originalUrl,
        headers: request.headers,
        body: Buffer.isBuffer(request.body) ? request.body : undefined,
        remote: { transport: entrance.transport, address: addressOf(request, entrance) },
      },
      request.id,
    )
    const gone = entrance.goneOf(request.raw.socket)
    const waits = asked.path === 'sys/events'
    const engineAnswer = await requests.run((signal) => engine.handle({ ...asked, gone }, signal), { waits, gone })
    return send(reply, encode(engineAnswer, asked))
  }
  const addressOf = (request: FastifyRequest, entrance: Entrance): string => {
    if (entrance.transport === 'unix') return ''
    const { socket } = request.raw
    const forwarded = entrance.mayForward(socket) ? request.headers['x-forwarded-for'] : undefined
    return clientAddress(entrance.peerOf(socket), typeof forwarded === 'string' ? forwarded : undefined, trusted)
  }

  app.route({ method: ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'LINK'], url: '/', handler: answer })
  app.setNotFoundHandler(answer)
  app.setErrorHandler((error, request, reply) => {
    const about = { requestId: request.id, method: request.method, place: placeOf(request.originalUrl) }
    const told = errorReply(ofFastify(error, limits), { log, random, about })
    if (told.retryAfterS !== undefined) reply.header('retry-after', String(told.retryAfterS))
    if (told.reason !== undefined) reply.header('x-keyturn-reason', told.reason)
    return send(reply, { status: told.status, body: JSON.stringify({ errors: told.errors }) })
  })
  await app.ready()

  return (entrance) => (request, response) => {
    requests.opened(response)
    const refusal = refusalOf(request)
    if (refusal) return refuse(response, refusal)
    // A body is what it is, whatever it is called: Fastify would refuse types that it cannot read.
    const contentType = request.headers['content-type']
    if (contentType !== undefined) request.headers['content-type'] = undefined
    arrivals.set(request, { entrance, contentType })
    // No other protocol is spoken here, and what follows on this connection may be meant as one.
    if (request.headers.upgrade !== undefined) response.setHeader('connection', 'close')
    app.routing(request, response)
  }
}

/** What Node would refuse with an answer that is no JSON. */
function refusalOf({ headers, httpVersion }: IncomingMessage): HttpRefusal | undefined {
  if (headers.host === undefined && httpVersion === '1.1') return new HttpRefusal(400, 'the request has no Host header')
  const { expect } = headers
  if (expect !== undefined && !/100-continue/i.test(expect))
    return new HttpRefusal(417, 'the request expects what this server does not do')
  return undefined
}

/** Before the body is read: what comes of it belongs to no request, so the connection ends. */
function refuse(response: ServerResponse, { status, message }: HttpRefusal): void {
  const body = JSON.stringify({ errors: [message] })
  response.writeHead(status, {
    connection: 'close',
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'content-length': Buffer.byteLength(body),
  })
  response.end(body)
}

/** Where a request went, for the log. The names at the end of a path stay out: people type passwords where user names belong. */
function placeOf(url: string): string {
  const [path = ''] = url.split('?', 1)
  const segments = path.split('/')
  return segments.slice(0, segments[2] === 'auth' || segments[2] === 'sys' ? 5 : 4).join('/')
}

function send(reply: FastifyReply, { status, body }: Reply): FastifyReply {
  reply.code(status).header('cache-control', 'no-store')
  if (body === undefined) return reply.send()
  // Octets, for Fastify adds a charset to text, and JSON has none.
  return reply.header('content-type', 'application/json').send(Buffer.from(body))
}

/** Fastify's own refusals of bodies, in our words. */
function ofFastify(error: unknown, limits: Limits): unknown {
  if (
    !(error instanceof Error) ||
    !('code' in error) ||
    typeof error.code !== 'string' ||
    !error.code.startsWith('FST_')
  )
    return error
  const status = 'statusCode' in error && typeof error.statusCode === 'number' ? error.statusCode : 500
  if (status === 413) return new AppError('too-large', `the request body is larger than ${limits.bodyBytes} bytes`)
  return status < 500 ? new HttpRefusal(status, error.message) : error
}
