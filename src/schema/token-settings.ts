import * as z from 'zod'
import { choice, duration, flag, integer, text } from './fields.ts'
import { set } from './resource.ts'

const TokenSettings = z.object({
  ttl: duration().exactOptional().describe('Lifetime of a token until it is renewed.'),
  maxTTL: duration().exactOptional().describe('Lifetime that renewals cannot exceed.'),
  explicitMaxTTL: duration().exactOptional().describe('Hard limit of the lifetime, fixed when the token is made.'),
  period: duration().exactOptional().describe('Makes tokens periodic: each renewal gives this much time.'),
  policies: set(text(128).min(1), { max: 256 }).exactOptional().describe('Policies of every token of this mount.'),
  noDefaultPolicy: flag().exactOptional().describe('Leave the policy "default" out.'),
  numUses: integer({ min: 0, max: 1_000_000_000 })
    .exactOptional()
    .describe('How many requests a token is good for; 0: no limit.'),
  boundCIDRs: set(text(64).min(1), { max: 64 }).exactOptional().describe('Networks that may log in and use the token.'),
  type: choice(['service', 'default']).exactOptional(),
})

/** Settings of the tokens that a login gives. */
export const tokenSettings = () => TokenSettings
export type TokenSettings = z.output<typeof TokenSettings>
