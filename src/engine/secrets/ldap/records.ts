import * as z from 'zod'
import { DIRECTORY_SCHEMAS } from '../../../schema/ldap-engine-config.ts'
import { accountCodec } from '../../account/account.ts'
import { connectionRecord } from '../../connection/connection.ts'
import { instantCodec, recordKind, secretCodec } from '../../storage/store.ts'

/** The documents of the LDAP secrets engine. Instants are dates, durations milliseconds, secrets `Secret`s. */

const flag = z.boolean().exactOptional()
const text = z.string().exactOptional()

const configCodec = z.object({
  ...connectionRecord,
  // These are always there: given at creation, or a default that a later change of default must not touch.
  urls: z.array(z.string()),
  schema: z.enum(DIRECTORY_SCHEMAS),
  userAttr: z.string(),
  bindDN: z.string(),
  bindPassword: secretCodec,
  // The rest only if it was given.
  credentialType: z.enum(['password', 'phrase']).exactOptional(),
  length: z.number().exactOptional(),
  skipStaticRoleImportRotation: z.boolean().exactOptional(),
  ttl: z.number().exactOptional(),
  maxTtl: z.number().exactOptional(),
})
export type EngineConfig = z.output<typeof configCodec>
/** Key: `<mountId>`. */
export const configKind = recordKind('ldap-config/', configCodec)

const staticRoleCodec = z.object({
  /** Tells this role from an earlier one of the same name. */
  id: z.string(),
  username: z.string(),
  /** As it was given; the entry is at this DN. */
  dn: text,
  rotationPeriodMs: z.number(),
  /** How it was asked for, to recognise the same creation again. */
  skippedImport: z.boolean(),
  /** Nobody was told yet that it exists: invisible, and gone if the directory refuses its first rotation. */
  creating: z.boolean(),
  /** Its creation ended after whoever asked had been told that the outcome is unknown: asking again succeeds. */
  recovered: flag,
  owner: text,
  /** The tenant it was made for; its table is asked before every rotation. */
  principal: text,
  /** Keys of the account index that this role holds. */
  accounts: z.array(z.string()),
  /** The regular one; while rotation fails, the record's due time is that of the next try. */
  nextRotation: instantCodec,
  account: accountCodec,
})
export type StaticRoleRecord = z.output<typeof staticRoleCodec>
/** Key: `<mountId>/<name>`. */
export const staticRoleKind = recordKind('static-role/', staticRoleCodec)

/** Names of the roles that may be listed (not those being created). Key: `<mountId>/<name>`. */
export const staticRoleNameKind = recordKind('static-role-name/', z.object({}))

/**
 * Which role manages an account (`managed-account.ts` says what the keys are). An entry whose role is gone, or is another one by now, counts
 * for nothing: entries are only ever written in a commit that proves the role, so none has to be cleaned up in time.
 */
export const accountKind = recordKind(
  'ldap-account/',
  z.object({
    role: z.string(),
    id: z.string(),
    /** The role's mount; absent where the key names it. */
    mount: text,
    /** Its role was deleted while a password was being sent, which may reach the directory until then. */
    freeAt: instantCodec.exactOptional(),
  }),
)

/** How many roles a tenant has. Key: `<mountId>/<principal>`. */
export const tenantKind = recordKind('ldap-tenant/', z.object({ staticRoles: z.int() }))
