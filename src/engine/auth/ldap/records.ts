import * as z from 'zod'
import { names, text } from '../../../schema/fields.ts'
import { connectionFields, connectionSpelling, TLS_VERSIONS } from '../../../schema/ldap-connection.ts'
import { tokenFields } from '../../../schema/token-fields.ts'
import { wire } from '../../../schema/wire.ts'
import { instantCodec, recordKind, secretCodec } from '../../storage/store.ts'

/** What the LDAP login method stores, per mount: one configuration, the mapped groups and users, and who is locked out. */

const configSchema = z.object({ ...connectionFields, ...tokenFields, policies: names(512), rotationSchema: text(16) })
export const configBody = wire(configSchema, connectionSpelling)
export type ConfigFields = Partial<z.output<typeof configSchema>>

const ms = z.number()
const list = z.array(z.string())
const configCodec = z
  .object({
    urls: list,
    caseSensitiveNames: z.boolean(),
    connectionTimeout: ms,
    requestTimeout: ms,
    startTLS: z.boolean(),
    tlsMinVersion: z.enum(TLS_VERSIONS),
    tlsMaxVersion: z.enum(TLS_VERSIONS),
    insecureTLS: z.boolean(),
    certificate: z.string(),
    clientTlsCert: z.string(),
    clientTlsKey: secretCodec,
    bindDN: z.string(),
    bindPassword: secretCodec,
    userDN: z.string(),
    userAttr: z.string(),
    discoverDN: z.boolean(),
    denyNullBind: z.boolean(),
    upnDomain: z.string(),
    userFilter: z.string(),
    anonymousGroupSearch: z.boolean(),
    groupFilter: z.string(),
    groupDN: z.string(),
    groupAttr: z.string(),
    usernameAsAlias: z.boolean(),
    dereferenceAliases: z.enum(['never', 'finding', 'searching', 'always']),
    maxPageSize: z.int(),
    useTokenGroups: z.boolean(),
    enableSamaccountnameLogin: z.boolean(),
    usePre111GroupCnBehavior: z.boolean(),
    passwordPolicy: z.string(),
    rotationPeriod: ms,
    rotationSchedule: z.string(),
    rotationWindow: ms,
    rotationSchema: z.string(),
    disableAutomatedRotation: z.boolean(),
    tokenTtl: ms,
    tokenMaxTtl: ms,
    tokenExplicitMaxTtl: ms,
    tokenPeriod: ms,
    tokenPolicies: list,
    tokenNoDefaultPolicy: z.boolean(),
    tokenNumUses: z.int(),
    tokenBoundCidrs: list,
    tokenType: z.enum(['', 'default', 'service', 'batch', 'default-service', 'default-batch']),
    /** The deprecated alias is told back only where it was used. */
    policies: list,
    owner: z.string(),
  })
  .partial()
export type LdapAuthConfig = z.output<typeof configCodec>

/** Key: id of the mount. */
export const configKind = recordKind('ldap-auth-config/', configCodec)

const groupCodec = z.object({ policies: list, owner: z.string().exactOptional() })
/** Key: `<mount id>/<group name>`, lower-cased unless the mount says otherwise. */
export const groupKind = recordKind('ldap-auth-group/', groupCodec)

const userCodec = z.object({ policies: list, groups: list, owner: z.string().exactOptional() })
/** Key: `<mount id>/<username>`. */
export const userKind = recordKind('ldap-auth-user/', userCodec)

/** Failed logins of one name; due for removal in the queue `lockout` when they no longer count. Key: `<mount id>/<name>`. */
export const lockoutKind = recordKind(
  'ldap-auth-lockout/',
  z.object({ failures: z.int(), lockedUntil: instantCodec.exactOptional() }),
)
export const LOCKOUT_QUEUE = 'ldap-lockout'
