import { Secret } from '../../lib/secret.ts'
import type { Caller } from '../backend.ts'
import type { EngineAnswer, EngineRequest, Value } from '../request.ts'
import type { Barrier } from '../seal/barrier.ts'

/**
 * Who did what, one JSON line before a request is served and one with its outcome. Texts in bodies and answers, and every token, stand
 * there as keyed hashes: equal values can be found, none can be read. A line that cannot be written refuses the request.
 */
export interface Audit {
  /** `place.fields`: the names of fields that are known there; what else stands as a name may be a secret in the wrong place. */
  request(
    request: EngineRequest,
    caller: Caller | undefined,
    place: { readonly mountType: string; readonly fields: readonly string[] },
    at: Date,
  ): Promise<void>
  response(request: EngineRequest, caller: Caller | undefined, outcome: Outcome, at: Date): Promise<void>
  /** Work nobody asked for at this moment: an automatic rotation (`rotation-records.ts`). The facts hold no secret. */
  event(type: string, facts: Readonly<Record<string, string | number | boolean>>, at: Date): Promise<void>
}

export type Outcome =
  | { readonly answer: EngineAnswer }
  | { readonly error: { readonly kind: string; readonly message: string } }

/** Where the lines go. Resolves when the line is with the operating system; rejects when it could not be written. */
export interface AuditDevice extends AsyncDisposable {
  write(line: string): Promise<void>
}

/** Without a device nothing is recorded. */
export function createAudit(device: AuditDevice | undefined, barrier: Barrier): Audit {
  const hash = (text: string) => (text === '' ? '' : `hmac-sha256:${barrier.hash('audit', text)}`)
  // The same in both lines of a request; the caller lives as long as the request.
  const described = new WeakMap<Caller, object>()
  const authOf = (caller: Caller | undefined) => {
    if (!caller?.tokenKey) return null
    const auth = described.get(caller) ?? describe(caller, hash)
    described.set(caller, auth)
    return auth
  }
  const write = async (record: object) => device?.write(`${JSON.stringify(record)}\n`)
  return {
    async request(request, caller, place, at) {
      if (!device) return
      await write({
        time: at,
        type: 'request',
        auth: authOf(caller),
        request: { ...requestOf(request), mount_type: place.mountType, data: fieldsOf(request, place.fields, hash) },
      })
    },
    async response(request, caller, outcome, at) {
      if (!device) return
      await write({
        time: at,
        type: 'response',
        auth: authOf(caller),
        request: requestOf(request),
        ...('error' in outcome
          ? { error: { ...outcome.error, message: withoutInput(outcome.error.message, request, hash) } }
          : { response: responseOf(outcome.answer, hash) }),
      })
    },
    async event(type, facts, at) {
      await write({ time: at, type, ...facts })
    },
  }
}

type Hash = (text: string) => string

function requestOf(request: EngineRequest) {
  return {
    id: request.id,
    operation: request.operation,
    path: request.path,
    remote_address: request.remote.address,
    transport: request.remote.transport,
    ...(request.owner !== undefined && { owner: request.owner }),
  }
}

function fieldsOf({ fields }: EngineRequest, known: readonly string[], hash: Hash) {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [known.includes(name) ? name : hash(name), given(value, hash)]),
  )
}

/** Bodies come from JSON, so there is nothing else in them. A number may be a password as well. */
function given(value: unknown, hash: Hash): unknown {
  if (value instanceof Secret) return hash(value.reveal())
  if (typeof value === 'string' || typeof value === 'number') return hash(String(value))
  if (Array.isArray(value)) return value.map((item) => given(item, hash))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, given(item, hash)]))
}

const SHORTEST_QUOTE = 4

/** A message may quote what it refuses; here only its hash may stand. */
function withoutInput(message: string, { fields }: EngineRequest, hash: Hash): string {
  let text = message
  for (const input of textsIn(fields))
    for (const quoted of [input, ...input.split(',').map((item) => item.trim())])
      for (const spelled of [quoted, quoted.toLowerCase()])
        if (spelled.length >= SHORTEST_QUOTE) text = text.replaceAll(spelled, () => hash(spelled))
  return text
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (value instanceof Secret) return [value.reveal()]
  if (typeof value !== 'object' || value === null) return []
  return Object.values(value).flatMap(textsIn)
}

function describe(caller: Caller, hash: Hash): object {
  return {
    display_name: caller.displayName,
    principal: caller.principal ?? null,
    accessor: hash(caller.tokenAccessor),
    entity_id: caller.entityId,
    policies: caller.policies,
  }
}

function responseOf(answer: EngineAnswer, hash: Hash) {
  if (answer.kind !== 'content') return { kind: answer.kind }
  const { auth } = answer
  return {
    kind: answer.kind,
    mount_type: answer.mountType,
    ...(answer.keys && { keys: answer.keys.length }),
    ...(answer.data && { data: hashed(answer.data, hash) }),
    ...(auth && {
      auth: {
        client_token: hash(auth.clientToken.reveal()),
        accessor: hash(auth.accessor),
        policies: auth.policies,
        entity_id: auth.entityId,
      },
    }),
  }
}

function hashed(value: Value, hash: Hash): unknown {
  if (value instanceof Secret) return hash(value.reveal())
  if (typeof value === 'string') return hash(value)
  if (value === null || typeof value !== 'object' || value instanceof Date) return value
  if (Array.isArray(value)) return value.map((item) => hashed(item, hash))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, hashed(item, hash)]))
}
