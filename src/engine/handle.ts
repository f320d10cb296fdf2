import type { Clock } from '../lib/clock.ts'
import { AppError, denied, invalid, notFound, unsupported } from '../lib/errors.ts'
import type { Logger } from '../lib/log.ts'
import { Secret } from '../lib/secret.ts'
import type { ContentAnswer, EngineAnswer } from '../schema/answer.ts'
import type { Audit } from './audit/audit.ts'
import type { Call, Caller, Reply, Route } from './backend.ts'
import type { MountTable } from './mount/mount-table.ts'
import type { PolicyService } from './policy/policy-service.ts'
import type { EngineDoor, EngineRequest } from './request.ts'
import type { Place } from './router.ts'
import { cidrAllows } from './token/cidr.ts'
import type { LiveToken, TokenService } from './token/token-service.ts'

/**
 * The spine: every request, from whomever, takes these steps in this order:
 *
 *   route (where would it go) → token (who asks) → audit → policy (may they) → fields → backend → token of a login → audit
 *
 * A caller without a right on a path learns nothing of what is there: policy is asked before a missing route is told.
 */
export interface HandleDeps {
  readonly mounts: MountTable
  readonly tokens: TokenService
  readonly policies: PolicyService
  readonly audit: Audit
  readonly clock: Clock
  readonly log: Logger
}

export function createDoor(deps: HandleDeps): EngineDoor {
  return {
    async handle(request, signal) {
      // `LIST a/b` and `LIST a/b/` are the same.
      const place = await deps.mounts.find(
        request.operation === 'list' ? request.path.replace(/\/+$/, '') : request.path,
      )
      const identified = await identify(deps, request, place).catch((error: unknown) => asError(error))
      const live = identified instanceof Error ? undefined : identified.live
      const caller = identified instanceof Error ? undefined : identified.caller
      const fields = place?.match?.route.body?.names ?? []
      const audit = place?.match?.route.isProbe ? UNAUDITED : deps.audit
      await audit.request(request, caller, { mountType: place?.mount.type ?? '', fields }, deps.clock.now())
      let answer: EngineAnswer
      try {
        if (identified instanceof Error) throw identified
        const warnings: string[] = []
        const call = callOf(request, place, identified.caller, warnings, signal)
        await authorize(deps, request, place, identified.caller, call)
        answer = await serve(deps, request, place, call, warnings)
      } catch (error) {
        const told =
          error instanceof AppError
            ? { kind: error.kind, message: error.message }
            : { kind: 'internal', message: 'internal error' }
        await audit.response(request, caller, { error: told }, deps.clock.now())
        throw error
      } finally {
        // What was done is told all the same: nobody can use the token any more, and the worker takes it away.
        if (live)
          await deps.tokens
            .spent(live)
            .catch((err: unknown) => deps.log.error({ err }, 'a token whose last use is over was not removed'))
      }
      await audit.response(request, caller, { answer }, deps.clock.now())
      return answer
    },
  }
}

/** For probes: an audit log that cannot be written must not have the server restarted that says so. */
const UNAUDITED: Pick<Audit, 'request' | 'response'> = {
  request: async () => undefined,
  response: async () => undefined,
}

interface Identified {
  readonly caller: Caller
  readonly live?: LiveToken
}

const NOBODY: Caller = {
  displayName: '',
  entityId: '',
  policies: [],
  tokenAccessor: '',
  tokenKey: '',
  isController: false,
}

/** Whether no token is looked at. */
function isOpen(request: EngineRequest, place: Place | undefined): boolean {
  const route = place?.match?.route
  return route?.unauthenticated === true || (route?.anonymous === 'allowed' && !request.token)
}

/** Who asks. Throws `denied` unless the route needs no token or the request carries one that lives and may be used from here. */
async function identify(deps: HandleDeps, request: EngineRequest, place: Place | undefined): Promise<Identified> {
  if (isOpen(request, place)) return { caller: NOBODY }
  const found = request.token && (await deps.tokens.lookup(request.token))
  if (!found) throw denied()
  const { record } = found
  if (record.isController && request.remote.transport === 'tcp') throw denied()
  if (record.mountId !== undefined && !(await deps.mounts.byId(record.mountId))) throw denied()
  if (record.boundCidrs.length > 0 && !cidrAllows(record.boundCidrs, request.remote.address)) throw denied()
  if (!record.isController && (request.principal !== undefined || request.owner !== undefined)) throw denied()
  const live = record.numUses > 0 ? await deps.tokens.spend(found) : found
  return {
    live,
    caller: {
      displayName: request.principal ?? record.displayName,
      entityId: record.entityId,
      policies: record.policies,
      tokenAccessor: record.accessor,
      tokenKey: found.key,
      ...(request.token && { token: request.token }),
      isController: record.isController,
      ...(request.principal !== undefined && { principal: request.principal }),
      ...(request.owner !== undefined && { owner: request.owner }),
    },
  }
}

function callOf(
  request: EngineRequest,
  place: Place | undefined,
  caller: Caller,
  warnings: string[],
  signal: AbortSignal,
): Call<Record<string, unknown>> | undefined {
  if (!place?.match) return undefined
  const { route, params } = place.match
  const base = {
    mount: place.mount,
    params,
    caller,
    remote: request.remote,
    requestId: request.id,
    signal,
    ...(request.gone && { gone: request.gone }),
    warn: (text: string) => warnings.push(text),
  }
  // Fields are read lazily: an unauthorised caller learns nothing from how they are refused.
  let parsed: Partial<Record<string, unknown>> | undefined
  return {
    ...base,
    get fields() {
      if (parsed) return parsed
      const given = Object.fromEntries(Object.entries(request.fields).filter(([name]) => !(name in params)))
      parsed = route.body?.parse(given).value ?? {}
      return parsed
    },
  }
}

async function authorize(
  deps: HandleDeps,
  request: EngineRequest,
  place: Place | undefined,
  caller: Caller,
  call: Call<Record<string, unknown>> | undefined,
): Promise<void> {
  const route = place?.match?.route
  if (isOpen(request, place)) return
  const exists = route?.exists
  const alias = canonicalPath(place)
  const { allowed } = await deps.policies.decide(caller.policies, {
    path: request.path,
    ...(alias !== undefined && { alias }),
    operation: request.operation,
    exists: async () => (exists && call ? exists(call) : true),
    fields: request.fields,
    meaning: (name, value) => meaningOf(route, name, value),
    needsSudo: route?.sudo === true,
  })
  if (!allowed) throw denied()
}

/** What the handler will see for a field; undefined where it will see nothing, or refuse it. */
function meaningOf(route: Route | undefined, name: string, value: unknown): unknown {
  try {
    const [meant] = Object.values(route?.body?.parse({ [name]: value }).value ?? {})
    return meant instanceof Secret ? meant.reveal() : meant
  } catch {
    return undefined
  }
}

/** The path of the same object by the name under which it is kept; `undefined` where that is no other. */
function canonicalPath(place: Place | undefined): string | undefined {
  const { route, params } = place?.match ?? {}
  const [name = ''] = Object.values(params ?? {})
  if (!place || !route?.sameName || name === route.sameName(name)) return undefined
  const start = route.pattern.indexOf(':')
  const { rest, mount } = place
  return `${mount.path}${rest.slice(0, start)}${route.sameName(name)}${rest.slice(start + name.length)}`
}

async function serve(
  deps: HandleDeps,
  request: EngineRequest,
  place: Place | undefined,
  call: Call<Record<string, unknown>> | undefined,
  warnings: string[],
): Promise<EngineAnswer> {
  if (!place?.match || !call) throw notFound(`no handler for route "${request.path}": route entry not found`)
  if (request.operation === 'write' && request.path.endsWith('/')) throw invalid('cannot write to a path ending in "/"')
  const handler = place.match.route[request.operation]
  if (!handler) throw unsupported()
  // Field errors come before any effect.
  void call.fields
  const reply = await handler(call)
  const { id: requestId } = request
  if (reply === undefined || ('keys' in reply && reply.keys?.length === 0)) {
    const absent = request.operation === 'read' || request.operation === 'list'
    return { kind: absent ? 'absent' : 'empty', requestId, warnings }
  }
  return content(deps, request, place, reply, [...warnings, ...unknownFields(request, place)])
}

/** A warning about fields that nobody knows; an answer without a body goes without it. */
function unknownFields({ operation, fields }: EngineRequest, { match }: Place): string[] {
  if (operation !== 'write' || !match) return []
  const known = new Set([...(match.route.body?.names ?? []), ...Object.keys(match.params)])
  const unknown = Object.keys(fields).filter((name) => !known.has(name))
  return unknown.length === 0 ? [] : [`these fields are not known and were ignored: ${unknown.join(', ')}`]
}

async function content(
  deps: HandleDeps,
  request: EngineRequest,
  { mount }: Place,
  reply: NonNullable<Reply>,
  warnings: readonly string[],
): Promise<ContentAnswer> {
  const base = { kind: 'content', requestId: request.id, mountType: mount.type } as const
  if ('login' in reply) {
    const issued = await deps.tokens.issueLogin(mount, reply.login, request.remote, request.path)
    return { ...base, shape: 'envelope', auth: issued.auth, warnings: [...warnings, ...issued.warnings] }
  }
  if ('auth' in reply) return { ...base, shape: 'envelope', auth: reply.auth, warnings }
  return { ...base, ...reply, warnings }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}
