import * as z from 'zod'
import { count, statusFields } from './conditions.ts'
import { choice, duration, flag, integer, text } from './fields.ts'
import { dn, keyRef } from './references.ts'
import { type Kind, pinned, type Rule, ruled } from './resource.ts'
import { mountPath, startTlsNeedsPlainUrls, tls, urls } from './tls.ts'
import { tokenSettings } from './token-settings.ts'

const Lockout = z.object({
  threshold: integer({ min: 1, max: 1000 }).exactOptional().describe('Failed logins until the user is locked out.'),
  duration: duration({ minMs: 1000 }).exactOptional(),
  counterReset: duration({ minMs: 1000 }).exactOptional().describe('Time after which failures are forgotten.'),
  disabled: flag().exactOptional(),
})

const Spec = z.object({
  path: mountPath().exactOptional().describe("Path below auth/; the object's name when absent. Immutable."),
  description: text(1024).exactOptional(),
  urls: urls(),
  tls: tls().exactOptional(),
  connectionTimeout: duration({ minMs: 1000 })
    .exactOptional()
    .describe('Time to connect to one server; 30s when absent.'),
  requestTimeout: duration({ minMs: 1000 })
    .exactOptional()
    .describe('Time limit of one directory operation; 90s when absent.'),
  caseSensitiveNames: flag().exactOptional(),
  bindDN: dn().exactOptional().describe('Account that searches for users and groups.'),
  bindPasswordSecretRef: keyRef().exactOptional().describe("Its password, in a Secret of Keyturn's namespace."),
  userDN: text(1024).exactOptional(),
  userAttr: text(128).exactOptional().describe('Attribute that holds the login name; cn when absent.'),
  userFilter: text(2048).exactOptional(),
  discoverDN: flag().exactOptional().describe('Search for the user without binding first.'),
  denyNullBind: flag().exactOptional().describe('Refuse empty passwords; true when absent.'),
  acknowledgeNullBind: flag()
    .exactOptional()
    .describe('Says that you know: with denyNullBind false, many directories let anybody in with an empty password.'),
  upnDomain: text(253).exactOptional(),
  enableSamaccountnameLogin: flag().exactOptional(),
  anonymousGroupSearch: flag().exactOptional(),
  groupDN: text(1024).exactOptional(),
  groupFilter: text(2048).exactOptional(),
  groupAttr: text(128).exactOptional(),
  useTokenGroups: flag().exactOptional(),
  usernameAsAlias: flag().exactOptional(),
  dereferenceAliases: choice(['never', 'finding', 'searching', 'always']).exactOptional(),
  maxPageSize: integer({ min: 0, max: 100_000 }).exactOptional(),
  token: tokenSettings().exactOptional(),
  lockout: ruled(Lockout, []).exactOptional(),
  deletionPolicy: choice(['Retain', 'Delete'])
    .exactOptional()
    .describe('Retain (default) leaves the mount when this object goes; Delete is refused while mappings use it.'),
})
type Input = z.input<typeof Spec>

export const ldapAuthRules: Rule<Input>[] = [
  {
    message:
      'denyNullBind: false lets users in without a password on many directories; it needs acknowledgeNullBind: true',
    cel: '!has(self.denyNullBind) || self.denyNullBind || (has(self.acknowledgeNullBind) && self.acknowledgeNullBind)',
    field: 'denyNullBind',
    check: (spec) => spec.denyNullBind !== false || spec.acknowledgeNullBind === true,
  },
  {
    message: 'bindDN and bindPasswordSecretRef go together',
    cel: 'has(self.bindDN) == has(self.bindPasswordSecretRef)',
    check: (spec) => (spec.bindDN === undefined) === (spec.bindPasswordSecretRef === undefined),
  },
  {
    message: 'enableSamaccountnameLogin needs upnDomain',
    cel: '!has(self.enableSamaccountnameLogin) || !self.enableSamaccountnameLogin || has(self.upnDomain)',
    check: (spec) => spec.enableSamaccountnameLogin !== true || spec.upnDomain !== undefined,
  },
]

const Status = z.object({
  ...statusFields,
  path: text(512).exactOptional().describe('Path of the mount, below auth/.'),
  mountAccessor: text(128).exactOptional(),
  bindSecretMAC: text(128).exactOptional().describe('Keyed MAC of the bind password that was applied last.'),
  configMAC: text(128).exactOptional().describe('Keyed MAC of certificates and keys that were applied last.'),
  refusedConfigMAC: text(128)
    .exactOptional()
    .describe('Keyed MAC of a configuration whose bind the directory refused.'),
  mappings: count().exactOptional(),
})

/** A login mount of type ldap and its configuration. */
export const LdapAuth = {
  kind: 'LdapAuth',
  plural: 'ldapauths',
  shortName: 'lda',
  scope: 'Cluster',
  description: 'A login mount: people and machines log in with their directory password and get a token.',
  spec: ruled(Spec, [...pinned(Spec, ['path']), startTlsNeedsPlainUrls, ...ldapAuthRules]),
  status: Status,
  columns: [
    { name: 'Path', path: '.status.path' },
    { name: 'Mappings', path: '.status.mappings', type: 'integer' },
  ],
} satisfies Kind
export type LdapAuthSpec = z.output<typeof LdapAuth.spec>
export type LdapAuthStatus = z.output<typeof LdapAuth.status>
