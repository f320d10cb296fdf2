import * as z from 'zod'
import type { Clock } from '../../../lib/clock.ts'
import type { Value, Values } from '../../../schema/answer.ts'
import { secretText, text } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import { type Handler, type Reply, type Route, route } from '../../backend.ts'
import type { LiveToken, TokenService } from '../../token/token-service.ts'
import { requireAccessor, requireOwn, requireToken } from './named.ts'

/** `lookup`, `lookup-self` and `lookup-accessor`: what is known of a token. */
export function lookupRoutes({ tokens, clock }: { readonly tokens: TokenService; readonly clock: Clock }): Route[] {
  const answer = (live: LiveToken, id: Value): Reply => ({
    shape: 'envelope',
    data: describe(live, id, clock.now()),
  })
  const own: Handler<unknown> = async ({ caller }) =>
    answer(await requireOwn(tokens, caller.tokenKey), caller.token ?? '')

  return [
    route({ pattern: 'lookup-self', read: own, write: own }),
    route({
      pattern: 'lookup',
      body: wire(z.object({ token: secretText(512) })),
      async write(call) {
        const { token } = call.fields
        // Without a token it is about the caller's.
        if (!token || token.isEmpty) return own(call)
        return answer(await requireToken(tokens, token), token)
      },
    }),
    route({
      pattern: 'lookup-accessor',
      body: wire(z.object({ accessor: text(64) })),
      write: async ({ fields }) => answer(await requireAccessor(tokens, fields.accessor), ''),
    }),
  ]
}

function describe({ record }: LiveToken, id: Value, now: Date): Values {
  const { expiresAt, lastRenewedAt } = record
  return {
    id,
    accessor: record.accessor,
    policies: record.policies,
    path: record.path,
    meta: Object.keys(record.metadata).length > 0 ? record.metadata : null,
    display_name: record.displayName,
    num_uses: record.numUses,
    orphan: record.orphan,
    creation_time: unixSeconds(record.issuedAt),
    creation_ttl: record.ttlMs / 1000,
    issue_time: record.issuedAt,
    expire_time: expiresAt ?? null,
    ttl: expiresAt ? Math.max(0, Math.ceil((expiresAt.getTime() - now.getTime()) / 1000)) : 0,
    explicit_max_ttl: record.explicitMaxTtlMs / 1000,
    entity_id: record.entityId,
    type: record.type,
    renewable: record.renewable,
    ...(record.periodMs > 0 && { period: record.periodMs / 1000 }),
    ...(record.boundCidrs.length > 0 && { bound_cidrs: record.boundCidrs }),
    ...(lastRenewedAt && { last_renewal: lastRenewedAt, last_renewal_time: unixSeconds(lastRenewedAt) }),
  }
}

function unixSeconds(instant: Date): number {
  return Math.floor(instant.getTime() / 1000)
}
