import * as z from 'zod'
import type { Due } from '../storage/driver.ts'
import { instantCodec, recordKind } from '../storage/store.ts'

/** What is kept of a token. The token itself is kept nowhere: its keyed hash is the record's key. */
const tokenCodec = z.object({
  accessor: z.string(),
  /** `last-use`: the request that is being served is the last. `revoked` and `orphaning`: dead; the worker removes what belongs to it. */
  state: z.enum(['live', 'last-use', 'revoked', 'orphaning']),
  policies: z.array(z.string()),
  parentKey: z.string().exactOptional(),
  /** The request that made it: `auth/ldap/login/bob`. */
  path: z.string(),
  metadata: z.record(z.string(), z.string()),
  displayName: z.string(),
  entityId: z.string(),
  type: z.literal('service'),
  issuedAt: instantCodec,
  lastRenewedAt: instantCodec.exactOptional(),
  /** Life at issue; the increment of a renewal that asks for none. */
  ttlMs: z.number(),
  /** Absent: never. */
  expiresAt: instantCodec.exactOptional(),
  /** When a token that is no longer live has to be gone. */
  endsAt: instantCodec.exactOptional(),
  explicitMaxTtlMs: z.number(),
  periodMs: z.number(),
  maxTtlMs: z.number(),
  /** Uses left; 0 is without limit (while the token is live). */
  numUses: z.int(),
  boundCidrs: z.array(z.string()),
  orphan: z.boolean(),
  renewable: z.boolean(),
  /** The auth mount of the login that it stems from: the token dies with that mount. */
  mountId: z.string().exactOptional(),
  /** Only of login tokens: what the backend needs to ask again. */
  renewal: z.record(z.string(), z.string()).exactOptional(),
  isController: z.boolean(),
})
export type TokenRecord = z.output<typeof tokenCodec>

export const tokenKind = recordKind('token/', tokenCodec)
export const accessorKind = recordKind('token-accessor/', z.object({ key: z.string() }))
/** `<parent key>/<child key>`: what makes revoking a tree cost what is in it. */
export const childKind = recordKind('token-child/', z.object({}))

/** A token that may be used now. */
export interface LiveToken {
  readonly key: string
  readonly record: TokenRecord
  readonly version: number
}

export const EXPIRY_QUEUE = 'token-expiry'

/** When the worker has to look at a token. */
export function dueOf(record: TokenRecord): { due?: Due } {
  const at = record.state === 'live' ? record.expiresAt : record.endsAt
  return at ? { due: { queue: EXPIRY_QUEUE, at } } : {}
}

/** A limited number of uses, also when this is the last. */
export function hasLimitedUses(record: TokenRecord): boolean {
  return record.numUses > 0 || record.state === 'last-use'
}
