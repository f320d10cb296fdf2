import * as z from 'zod'
import { count, instant, statusFields } from './conditions.ts'
import { choice, duration, flag, text } from './fields.ts'
import { outputSecret } from './output-secret.ts'
import { dn, objectRef } from './references.ts'
import { type Kind, pinned, ruled } from './resource.ts'

/** Names of engine objects: path-safe segments, none of them "." or "..". */
export const roleName = () =>
  text(253).regex(
    /^[A-Za-z0-9_]([A-Za-z0-9_-]|\.[A-Za-z0-9_-])*(\/[A-Za-z0-9_]([A-Za-z0-9_-]|\.[A-Za-z0-9_-])*)*$/,
    'must be segments of letters, digits, ".", "_" and "-" joined by "/"',
  )

const Spec = z.object({
  engineRef: objectRef().describe('The LdapEngine whose directory holds the account. Immutable.'),
  roleName: roleName()
    .exactOptional()
    .describe(
      "Name of the role in the engine, where the engine's tenancy allows it. Default: <namespace>/<name>. Immutable.",
    ),
  username: text(256).min(1).describe("Account name, searched below the engine's userDN. Immutable."),
  dn: dn().exactOptional().describe('Full DN of the account; wins over username in searches. Immutable.'),
  rotationPeriod: duration({ minMs: 5000 }).describe('How long a password lives; at least 5 seconds.'),
  skipImportRotation: flag()
    .exactOptional()
    .describe('Leave the password as it is until the first rotation is due. Read at creation only. Immutable.'),
  adoptionPolicy: choice(['Refuse', 'Adopt'])
    .exactOptional()
    .describe('What to do with a role of this name that was made through the API: Refuse (default) or Adopt.'),
  deletionPolicy: choice(['Delete', 'Retain'])
    .exactOptional()
    .describe('Whether the role in the engine goes with this object: Delete (default) or Retain.'),
  suspend: flag().exactOptional().describe('Change nothing for this object while true; the engine goes on rotating.'),
  output: outputSecret().exactOptional().describe('A Secret in this namespace that always holds the current password.'),
})

const Status = z.object({
  ...statusFields,
  engineMount: text(512).exactOptional().describe('Path of the mount that holds the role.'),
  engineRoleName: text(512).exactOptional(),
  resolvedDN: text(2048).exactOptional().describe('DN of the entry, as the directory gave it.'),
  credentialVersion: count().exactOptional().describe('Number of the current password; one more with each rotation.'),
  lastRotationTime: instant().exactOptional(),
  nextRotationTime: instant().exactOptional(),
  lastHandledRotateRequest: text(256)
    .exactOptional()
    .describe('Value of the annotation keyturn.dev/rotate-requested-at that was handled last.'),
  secret: z
    .object({
      name: text(253),
      uid: text(128),
      mode: choice(['Create', 'Merge']).exactOptional(),
      deletionPolicy: choice(['Delete', 'Retain']).exactOptional(),
    })
    .exactOptional(),
  secretMAC: text(128).exactOptional().describe('Keyed MAC of what the Secret holds.'),
})

/** An existing directory account whose password Keyturn turns. */
export const LdapStaticRole = {
  kind: 'LdapStaticRole',
  plural: 'ldapstaticroles',
  shortName: 'lsr',
  scope: 'Namespaced',
  description: 'An existing directory account whose password is turned on a schedule and kept in a Secret.',
  spec: ruled(Spec, pinned(Spec, ['engineRef', 'roleName', 'username', 'dn', 'skipImportRotation'])),
  status: Status,
  columns: [
    { name: 'Username', path: '.spec.username' },
    { name: 'LastRotation', path: '.status.lastRotationTime', type: 'date' },
    { name: 'NextRotation', path: '.status.nextRotationTime', priority: 1 },
    { name: 'Secret', path: '.status.secret.name', priority: 1 },
  ],
  selectableFields: ['.spec.engineRef.name'],
} satisfies Kind
export type LdapStaticRoleSpec = z.output<typeof LdapStaticRole.spec>
export type LdapStaticRoleStatus = z.output<typeof LdapStaticRole.status>
