import { Agent, type Dispatcher, errors, request as send } from 'undici'
import { AppError, denied, invalid, messageOf, notFound, unavailable, unsupported } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'
import { isObject, type Json, jsonOf } from '../schema/answer-json.ts'
import { type DoorRequest, queryOf, type Transport } from './transport.ts'

export interface HttpOptions {
  /** `https://host:8200`, `http://127.0.0.1:8200`, or `unix:/run/keyturn.sock`. */
  readonly address: string
  /** PEM text of the CA to trust in place of the system's. */
  readonly ca?: string
  /** Takes any certificate. For trying out. */
  readonly insecure?: boolean
  /** Connections at most; requests beyond wait. */
  readonly connections?: number
}

// Longer than the server's own limit for an answer, so that the server's word comes first.
const ANSWER_MS = 95_000
const CONNECT_MS = 10_000

/** The engine's door over HTTP. Throws `invalid` for an address that is none. */
export function httpTransport({ address, ca, insecure = false, connections = 32 }: HttpOptions): Transport {
  const { origin, socketPath } = parseAddress(address)
  const agent = new Agent({
    connections,
    headersTimeout: ANSWER_MS,
    bodyTimeout: ANSWER_MS,
    connect: {
      timeout: CONNECT_MS,
      rejectUnauthorized: !insecure,
      ...(ca !== undefined && { ca }),
      ...(socketPath !== undefined && { socketPath }),
    },
  })
  return {
    async send(request, signal) {
      const { url, options } = httpRequest(origin, request)
      let status: number
      let text: string
      let reason: string | undefined
      try {
        const response = await send(url, { ...options, dispatcher: agent, signal })
        status = response.statusCode
        const named = response.headers['x-keyturn-reason']
        reason = typeof named === 'string' ? named : undefined
        text = await response.body.text()
      } catch (cause) {
        if (signal.aborted) throw signal.reason
        throw unreachable(address, cause)
      }
      if (status === 204) return { kind: 'nothing' }
      const body = parse(text, status)
      if (status === 200) return { kind: 'content', body }
      const told = isObject(body) && Array.isArray(body['errors']) ? body['errors'].map(String) : undefined
      // Health and the like answer with other statuses and no errors.
      if (!told) return { kind: 'content', body }
      if (status === 404 && told.length === 0) return { kind: 'absent' }
      throw failure(status, told, reason)
    },
    async [Symbol.asyncDispose]() {
      await agent.close()
    },
  }
}

function parseAddress(address: string): { origin: string; socketPath?: string } {
  if (address.startsWith('unix:/'))
    return { origin: 'http://localhost', socketPath: address.slice('unix:'.length).replace(/^\/\//, '') }
  const url = URL.parse(address)
  if (!url || !/^https?:$/.test(url.protocol))
    throw invalid(`the address "${address}" must begin with https://, http:// or unix:/`)
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw invalid(`the address "${address}" must end with its host and port`)
  return { origin: url.origin }
}

function httpRequest(origin: string, { operation, path, fields, token, principal, owner }: DoorRequest) {
  const spelled = path.split('/').map(encodeURIComponent).join('/')
  const url = new URL(`${origin}/v1/${spelled}`)
  const body = jsonOf(fields, reveal)
  const headers: Record<string, string> = {
    'x-vault-request': 'true',
    ...(token && { 'x-service-token': token.reveal() }),
    ...(principal !== undefined && { 'x-keyturn-principal': principal }),
    ...(owner !== undefined && { 'x-keyturn-owner': owner }),
  }
  if (operation !== 'write') {
    for (const [name, value] of isObject(body) ? queryOf(body) : []) url.searchParams.append(name, value)
    if (operation === 'list') url.searchParams.set('list', 'true')
    const options: { method: Dispatcher.HttpMethod; headers: Record<string, string> } = {
      method: operation === 'delete' ? 'DELETE' : 'GET',
      headers,
    }
    return { url, options }
  }
  headers['content-type'] = 'application/json'
  return { url, options: { method: 'POST' as const, headers, body: JSON.stringify(body) } }
}

function reveal(secret: Secret): string {
  return secret.reveal()
}

function parse(text: string, status: number): Json {
  try {
    // What JSON.parse returns is JSON.
    return JSON.parse(text) as Json
  } catch {
    throw status >= 500
      ? unavailable(`the server answered ${status} without JSON; something between may have answered for it`)
      : new Error(`the server answered ${status} with what is no JSON; is this the right address?`)
  }
}

function failure(status: number, told: readonly string[], reason: string | undefined): Error {
  const message = told.flatMap(reasons).join('; ') || `the server answered ${status}`
  const options = reason === undefined ? {} : { reason }
  switch (status) {
    case 400:
    case 415:
      return invalid(message, options)
    case 403:
      return denied(message, options)
    case 404:
      return notFound(message, options)
    case 405:
      return unsupported(message, options)
    case 413:
    case 431:
      return new AppError('too-large', message, options)
    case 500:
      return new Error(`the server failed: ${message}`)
    default:
      return unavailable(message, options)
  }
}

/** The reasons in a text such as `2 errors occurred:\n\t* permission denied\n\t* bad token\n\n`, the telling ones. */
function reasons(text: string): string[] {
  const items = [...text.matchAll(/^\t\* (.*)$/gm)].map((match) => match[1] ?? '')
  if (items.length === 0) return [text]
  return items.length === 1 ? items : items.filter((item) => item !== 'permission denied')
}

/**
 * Why there is no answer. What is wrong with a certificate, a scheme or a token stays wrong, so that is `invalid`. Reasons:
 * `untrusted-certificate`, `other-name`, `no-tls`, `closed` (perhaps for want of TLS).
 */
function unreachable(address: string, cause: unknown): AppError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
  const told = messageOf(cause)
  if (code === 'UND_ERR_INVALID_ARG') return invalid(`the request cannot be sent: ${told}`, { cause })
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return invalid(`the certificate of ${address} is for another name: ${told}`, { cause, reason: 'other-name' })
  if (/CERT|SIGNATURE/.test(code))
    return invalid(`the certificate of ${address} is not trusted: ${told}`, { cause, reason: 'untrusted-certificate' })
  if (code.startsWith('ERR_SSL_')) return invalid(`${address} does not answer in TLS`, { cause, reason: 'no-tls' })
  const late = cause instanceof errors.HeadersTimeoutError || cause instanceof errors.BodyTimeoutError
  const closed = cause instanceof errors.SocketError ? { reason: 'closed' } : {}
  return unavailable(`cannot reach ${address}: ${late ? 'it did not answer in time' : told}`, { cause, ...closed })
}
