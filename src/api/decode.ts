import type { IncomingHttpHeaders } from 'node:http'
import type { EngineRequest, Operation, Remote } from '../engine/request.ts'
import { parseDurationMs } from '../lib/duration.ts'
import { denied, invalid, unsupported } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'
import { listPath, requirePath } from '../schema/path.ts'
import { pairs, parseBody } from './body.ts'
import { HttpRefusal } from './errors.ts'

export interface HttpRequest {
  readonly method: string
  /** The request target as it was sent. */
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer | undefined
  readonly remote: Remote
}

/** What an HTTP request asks of the engine. Throws `AppError` or `HttpRefusal` for what asks for nothing. */
export function decode(http: HttpRequest, id: string): EngineRequest {
  const { headers, remote } = http
  const { path: spelled, query } = target(http.url)
  const operation = operationOf(http, query.get('list'))
  requireRootNamespace(header(headers, 'x-vault-namespace'))
  refuseWrapping(headers)
  const path = pathOf(spelled, operation)
  const token = tokenOf(headers)
  const principal = header(headers, 'x-keyturn-principal')
  const owner = header(headers, 'x-keyturn-owner')
  if (remote.transport === 'tcp' && (principal !== '' || owner !== ''))
    throw denied('permission denied: X-Keyturn-Principal and X-Keyturn-Owner are taken on the unix socket only')
  let fields: EngineRequest['fields']
  if (operation === 'write') fields = parseBody(http.body, header(headers, 'content-type').toLowerCase())
  else {
    query.delete('list')
    fields = pairs(query)
  }
  return {
    id,
    operation,
    path,
    ...(token !== '' && { token: new Secret(token) }),
    dialect: dialectOf(headers),
    fields,
    remote,
    ...(principal !== '' && { principal }),
    ...(owner !== '' && { owner }),
  }
}

function operationOf({ method, headers }: HttpRequest, list: string | null): Operation {
  switch (method) {
    case 'GET':
    case 'HEAD':
      return list !== null && boolean(list) ? 'list' : 'read'
    // How `list-verb.ts` spells LIST.
    case 'LINK':
      return 'list'
    case 'POST':
    case 'PUT':
      return 'write'
    case 'DELETE':
      return 'delete'
    case 'PATCH':
      if (!header(headers, 'content-type').toLowerCase().startsWith('application/merge-patch+json'))
        throw new HttpRefusal(415, 'a PATCH needs the content type application/merge-patch+json')
      throw unsupported()
    default:
      throw unsupported()
  }
}

function boolean(text: string): boolean {
  if (/^(1|t|T|true|TRUE|True)$/.test(text)) return true
  if (/^(0|f|F|false|FALSE|False)$/.test(text)) return false
  throw invalid('the query parameter list must be true or false')
}

function target(url: string): { path: string; query: URLSearchParams } {
  // A proxy may send the absolute form.
  const origin = url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?#]*/i, '')
  const mark = origin.indexOf('?')
  if (mark < 0) return { path: origin, query: new URLSearchParams() }
  return { path: origin.slice(0, mark), query: new URLSearchParams(origin.slice(mark + 1)) }
}

function pathOf(spelled: string, operation: Operation): string {
  if (!spelled.startsWith('/v1/') || spelled.length === 4)
    throw new HttpRefusal(404, 'nothing is here: every path of the API begins with /v1/')
  let path = spelled.slice(4)
  if (path.includes('%')) {
    try {
      path = decodeURIComponent(path)
    } catch {
      throw invalid('the path is not properly percent-encoded')
    }
  }
  requirePath(path)
  if (operation === 'list') return listPath(path)
  if (operation === 'write' && path.endsWith('/')) throw invalid('cannot write to a path ending in "/"')
  return path
}

function header(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name]
  return typeof value === 'string' ? value.trim() : ''
}

function tokenOf(headers: IncomingHttpHeaders): string {
  return header(headers, 'x-service-token') || header(headers, 'x-vault-token') || bearer(headers)
}

function bearer(headers: IncomingHttpHeaders): string {
  return /^bearer +(\S+)$/i.exec(header(headers, 'authorization'))?.[1] ?? ''
}

/** The bare lists are for those who show nothing but the specification's own header. */
function dialectOf(headers: IncomingHttpHeaders): 'envelope' | 'bare' {
  const peer = header(headers, 'x-vault-token') !== '' || header(headers, 'x-vault-request').toLowerCase() === 'true'
  return header(headers, 'x-service-token') !== '' && !peer && bearer(headers) === '' ? 'bare' : 'envelope'
}

function requireRootNamespace(namespace: string): void {
  const name = namespace.replace(/^\/+|\/+$/g, '')
  if (name !== '' && name !== 'root') throw new HttpRefusal(404, 'no such namespace: there is only the root namespace')
}

/** Who asks for a wrapped answer must not get it bare. */
function refuseWrapping(headers: IncomingHttpHeaders): void {
  for (const name of ['x-vault-wrap-ttl', 'x-service-wrap-ttl']) {
    const ttl = header(headers, name)
    parseDurationMs(ttl, name)
    if (/[1-9]/.test(ttl)) throw invalid(`${name}: answers are not wrapped by this server`)
  }
}
