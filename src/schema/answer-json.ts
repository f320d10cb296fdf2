import { Secret } from '../lib/secret.ts'
import type { ContentAnswer, EngineAnswer, Value } from './answer.ts'

/**
 * How an answer of the engine is laid out as JSON. Both the HTTP API and the in-process client lay answers
 * out here, so that a caller sees the same whichever way it came. Nothing is revealed here: the caller hands in how a `Secret` is.
 */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json }
export type JsonObject = { readonly [name: string]: Json }

export type Layout =
  | { readonly kind: 'nothing' }
  | { readonly kind: 'absent'; readonly body: JsonObject }
  | { readonly kind: 'content'; readonly body: Json }

export function layoutAnswer(
  answer: EngineAnswer,
  dialect: 'envelope' | 'bare',
  reveal: (secret: Secret) => string,
): Layout {
  switch (answer.kind) {
    case 'empty':
      if (answer.warnings.length === 0) return { kind: 'nothing' }
      return {
        kind: 'content',
        body: envelope({ ...answer, kind: 'content', mountType: '', shape: 'envelope' }, null, reveal),
      }
    case 'absent':
      return absent(answer.warnings)
    case 'content':
      return layoutContent(answer, dialect, reveal)
    default:
      return answer satisfies never
  }
}

function layoutContent(
  answer: ContentAnswer,
  dialect: 'envelope' | 'bare',
  reveal: (secret: Secret) => string,
): Layout {
  const { shape, keys = [] } = answer
  switch (shape) {
    case 'raw':
      return { kind: 'content', body: jsonOf(answer.data ?? {}, reveal) }
    case 'envelope':
      return { kind: 'content', body: envelope(answer, answer.data ? jsonOf(answer.data, reveal) : null, reveal) }
    case 'flat': {
      const data = jsonOf(answer.data ?? {}, reveal)
      // The members of the envelope stand last: no payload may replace one of them.
      return { kind: 'content', body: { ...(isObject(data) ? data : {}), ...envelope(answer, data, reveal) } }
    }
    case 'keys':
      if (dialect === 'bare') return { kind: 'content', body: [...keys] }
      return listing(answer, keys, reveal)
    case 'listing':
      return listing(answer, keys, reveal)
    default:
      return shape satisfies never
  }
}

function listing(answer: ContentAnswer, keys: readonly string[], reveal: (secret: Secret) => string): Layout {
  if (keys.length === 0) return absent(answer.warnings)
  const more = answer.data ? jsonOf(answer.data, reveal) : {}
  return { kind: 'content', body: envelope(answer, { ...(isObject(more) ? more : {}), keys }, reveal) }
}

function absent(warnings: readonly string[]): Layout {
  return { kind: 'absent', body: warnings.length === 0 ? { errors: [] } : { errors: [], warnings } }
}

function envelope(answer: ContentAnswer, data: Json, reveal: (secret: Secret) => string): JsonObject {
  const { auth, lease } = answer
  return {
    request_id: answer.requestId,
    lease_id: lease?.id ?? '',
    renewable: lease?.renewable ?? false,
    lease_duration: seconds(lease?.durationMs ?? 0),
    data,
    wrap_info: null,
    warnings: answer.warnings.length === 0 ? null : answer.warnings,
    auth: auth
      ? {
          client_token: reveal(auth.clientToken),
          accessor: auth.accessor,
          policies: auth.policies,
          token_policies: auth.tokenPolicies,
          ...(auth.identityPolicies.length > 0 && { identity_policies: auth.identityPolicies }),
          metadata: auth.metadata ?? null,
          lease_duration: seconds(auth.leaseDurationMs),
          renewable: auth.renewable,
          entity_id: auth.entityId,
          token_type: auth.tokenType,
          orphan: auth.orphan,
          mfa_requirement: null,
          num_uses: auth.numUses,
        }
      : null,
    mount_type: answer.mountType,
  }
}

/** A value as JSON; instants as RFC 3339 in UTC. */
export function jsonOf(value: Value, reveal: (secret: Secret) => string): Json {
  if (value === null || typeof value !== 'object') return value
  if (value instanceof Secret) return reveal(value)
  if (value instanceof Date) return value.toISOString().replace('.000Z', 'Z')
  if (isList(value)) return value.map((item) => jsonOf(item, reveal))
  const object: Record<string, Json> = {}
  for (const [name, item] of Object.entries(value)) {
    // Defined, not assigned: a name such as `__proto__` is a name like any other.
    if (name === '__proto__') Object.defineProperty(object, name, { value: jsonOf(item, reveal), enumerable: true })
    else object[name] = jsonOf(item, reveal)
  }
  return object
}

function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value)
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function seconds(ms: number): number {
  return Math.max(0, Math.floor(ms / 1000))
}
