import * as z from 'zod'
import { invalid } from '../lib/errors.ts'
import { choice, duration, flag, integer, names } from './fields.ts'

/** The `token_*` settings that every login method shares, over HTTP (SPECIFICATION 2.2). */
export const tokenFields = {
  tokenTtl: duration(),
  tokenMaxTtl: duration(),
  tokenExplicitMaxTtl: duration(),
  tokenPeriod: duration(),
  tokenPolicies: names(512),
  tokenNoDefaultPolicy: flag(),
  tokenNumUses: integer({ min: 0, max: 2_147_483_647 }),
  tokenBoundCidrs: names(64),
  tokenType: choice(['', 'default', 'service', 'batch', 'default-service', 'default-batch']),
}
const tokenSchema = z.object(tokenFields)
export type TokenFields = z.output<typeof tokenSchema>

/** Policy names as they are stored: trimmed, lower-cased, each once, sorted. */
export function normalizePolicies(policies: readonly string[]): string[] {
  return [...new Set(policies.map((name) => name.trim().toLowerCase()).filter((name) => name !== ''))].sort()
}

/** The rules over a whole set of token settings; throws `invalid` naming the field. */
export function requireTokenFields(fields: Partial<TokenFields>): void {
  const { tokenTtl = 0, tokenMaxTtl = 0, tokenType = '' } = fields
  if (tokenMaxTtl > 0 && tokenTtl > tokenMaxTtl) throw invalid('token_ttl must not be greater than token_max_ttl')
  if ((fields.tokenPolicies ?? []).includes('root')) throw invalid('token_policies must not contain "root"')
  if (tokenType === 'batch' || tokenType === 'default-batch')
    throw invalid(`token_type: this version issues service tokens only, not "${tokenType}"`)
}
