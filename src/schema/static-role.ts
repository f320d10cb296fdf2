import * as z from 'zod'
import { duration, flag, text } from './fields.ts'
import { wire } from './wire.ts'

/** Fields of `ldap/static-role/:name`. */
export const StaticRole = z.object({
  username: text(256).describe('Account name, searched below the userdn of the mount. Cannot change.'),
  dn: text(1024).describe('DN of the account; wins over username in searches. Cannot change.'),
  rotationPeriod: duration({ minMs: 5_000 }).describe('How long a password lives; at least 5 seconds.'),
  skipImportRotation: flag().describe('At creation only: keep the password as it is until the first period ends.'),
  adopt: flag().describe('For the controller: take over a role that no resource owns, without rotating.'),
  disown: flag().describe('For the controller: leave the role to everybody.'),
})
export type StaticRole = z.output<typeof StaticRole>

export const StaticRoleBody = wire(StaticRole)
