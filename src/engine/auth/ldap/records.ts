import * as z from 'zod'
import { choice, flag, names } from '../../../schema/fields.ts'
import { connectionFields, connectionSpelling } from '../../../schema/ldap-connection.ts'
import { DIRECTORY_SCHEMAS } from '../../../schema/ldap-engine-config.ts'
import { tokenFields } from '../../../schema/token-fields.ts'
import { wire } from '../../../schema/wire.ts'
import { connectionRecord } from '../../connection/connection.ts'
import { instantCodec, recordKind } from '../../storage/store.ts'

/** What the LDAP login method stores, per mount: one configuration, the mapped groups and users, and who is locked out. */

const configSchema = z.object({
  ...connectionFields,
  ...tokenFields,
  policies: names(512),
  rotationSchema: choice(DIRECTORY_SCHEMAS),
  disown: flag(),
  prove: flag(),
})
export const configBody = wire(configSchema, connectionSpelling)
export type ConfigFields = Partial<z.output<typeof configSchema>>

const list = z.array(z.string())
const configCodec = z.object({
  ...connectionRecord,
  rotationSchema: z.string().exactOptional(),
  tokenTtl: z.number().exactOptional(),
  tokenMaxTtl: z.number().exactOptional(),
  tokenExplicitMaxTtl: z.number().exactOptional(),
  tokenPeriod: z.number().exactOptional(),
  tokenPolicies: list.exactOptional(),
  tokenNoDefaultPolicy: z.boolean().exactOptional(),
  tokenNumUses: z.int().exactOptional(),
  tokenBoundCidrs: list.exactOptional(),
  tokenType: z.enum(['', 'default', 'service', 'batch', 'default-service', 'default-batch']).exactOptional(),
  /** The deprecated alias is told back only where it was used. */
  policies: list.exactOptional(),
})
export type LdapAuthConfig = z.output<typeof configCodec>

/** Key: id of the mount. */
export const configKind = recordKind('ldap-auth-config/', configCodec)

const groupCodec = z.object({ policies: list, owner: z.string().exactOptional() })
/** Key: `<mount id>/<group name>`, as `names.ts` spells it. */
export const groupKind = recordKind('ldap-auth-group/', groupCodec)

const userCodec = z.object({ policies: list, groups: list, owner: z.string().exactOptional() })
/** Key: `<mount id>/<username>`. */
export const userKind = recordKind('ldap-auth-user/', userCodec)

/**
 * Failed logins under one name, or into one entry (`name` is then the last one it was found by); due for removal in the queue `lockout` when they
 * no longer count. Key: `<mount id>/<keyed hash of name or entry>`.
 */
export const lockoutKind = recordKind(
  'ldap-auth-lockout/',
  z.object({
    name: z.string(),
    /** Earlier names under which the same entry was found. */
    others: z.array(z.string()).exactOptional(),
    failures: z.int(),
    lockedUntil: instantCodec.exactOptional(),
  }),
)
export const LOCKOUT_QUEUE = 'ldap-lockout'
