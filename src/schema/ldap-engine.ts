import * as z from 'zod'
import { count, instant, statusFields } from './conditions.ts'
import { choice, duration, flag, integer, text } from './fields.ts'
import { dn, keyRef, namespaces } from './references.ts'
import { type Kind, list, pinned, ruled, set } from './resource.ts'
import { mountPath, startTlsNeedsPlainUrls, tls, urls } from './tls.ts'

/** Who may manage which part of the directory through this mount. Nobody may without an entry. */
export const TenancyEntry = z.object({
  namespaces: namespaces(),
  kinds: set(choice(['StaticRole', 'DynamicRole', 'LibrarySet']), { min: 1, max: 3 }),
  allowedDNs: set(dn(), { min: 1, max: 100 }).describe('Managed entries must lie at or below one of these DNs.'),
  allowedGroupDNs: set(dn(), { max: 100 }).exactOptional().describe('Groups that LDIF may change.'),
  deniedDNs: set(dn(), { max: 100 }).exactOptional().describe('Never, whatever allowedDNs says.'),
  minRotationPeriod: duration({ minMs: 5000 }).exactOptional().describe('Shortest rotation period of a static role.'),
  maxTTL: duration({ minMs: 1000 }).exactOptional().describe('Longest life of a lease.'),
  maxRoles: integer({ min: 1, max: 1_000_000 })
    .exactOptional()
    .describe('How many roles and sets a namespace may have.'),
  freeRoleNames: flag().exactOptional().describe('Whether spec.roleName may be used.'),
})
export type TenancyEntry = z.output<typeof TenancyEntry>

const Spec = z.object({
  path: mountPath().exactOptional().describe("Path of the mount; the object's name when absent. Immutable."),
  description: text(1024).exactOptional(),
  schema: choice(['openldap', 'ad', 'racf']).exactOptional().describe('openldap when absent. Immutable.'),
  urls: urls(),
  bindDN: dn().describe('Account that searches the directory and writes passwords.'),
  bindPasswordSecretRef: keyRef().describe(
    "Its password, in a Secret of Keyturn's namespace. Read when the Secret changes, and never re-applied otherwise.",
  ),
  userDN: text(1024).exactOptional().describe('Base of searches for accounts.'),
  userAttr: text(128)
    .exactOptional()
    .describe('Attribute that holds the account name; the default depends on the schema.'),
  upnDomain: text(253).exactOptional(),
  requestTimeout: duration({ minMs: 1000 })
    .exactOptional()
    .describe('Time limit of one directory operation; 90s when absent.'),
  tls: tls().exactOptional(),
  skipStaticRoleImportRotation: flag().exactOptional().describe('Default of skipImportRotation for static roles.'),
  defaultLeaseTTL: duration().exactOptional(),
  maxLeaseTTL: duration().exactOptional(),
  deletionPolicy: choice(['Retain', 'Delete'])
    .exactOptional()
    .describe('Retain (default) leaves the mount when this object goes. While roles use it, deletion waits.'),
  tenancy: list(TenancyEntry, { max: 64 })
    .exactOptional()
    .describe('Without an entry no namespace may use this mount.'),
})

const RoleCounts = z.object({
  static: count().exactOptional(),
  dynamic: count().exactOptional(),
  sets: count().exactOptional(),
})

const Status = z.object({
  ...statusFields,
  path: text(512).exactOptional().describe('Path of the mount.'),
  schema: text(32).exactOptional().describe('Schema of the directory.'),
  mountAccessor: text(128).exactOptional(),
  rootCredential: z
    .object({ source: choice(['FromSecret', 'RotatedByEngine']), lastRotationTime: instant().exactOptional() })
    .exactOptional(),
  bindSecretMAC: text(128).exactOptional().describe('Keyed MAC of the bind password that was applied last.'),
  configMAC: text(128).exactOptional().describe('Keyed MAC of certificates and keys that were applied last.'),
  refusedConfigMAC: text(128)
    .exactOptional()
    .describe('Keyed MAC of a configuration whose bind the directory refused.'),
  circuit: choice(['Closed', 'Open'])
    .exactOptional()
    .describe('Open: the directory is not asked, but for a probe now and then.'),
  roles: RoleCounts.exactOptional().describe('How many objects use this mount.'),
})

/** A secrets mount of type ldap and its configuration. */
export const LdapEngine = {
  kind: 'LdapEngine',
  plural: 'ldapengines',
  shortName: 'lde',
  scope: 'Cluster',
  description:
    'A secrets mount for one directory: how to reach it, and which namespaces may manage which accounts in it.',
  spec: ruled(Spec, [...pinned(Spec, ['path', 'schema']), startTlsNeedsPlainUrls]),
  status: Status,
  columns: [
    { name: 'Path', path: '.status.path' },
    { name: 'Schema', path: '.status.schema' },
    { name: 'Roles', path: '.status.roles.static', type: 'integer' },
    { name: 'Circuit', path: '.status.circuit', priority: 1 },
  ],
} satisfies Kind
export type LdapEngineSpec = z.output<typeof LdapEngine.spec>
export type LdapEngineStatus = z.output<typeof LdapEngine.status>
