import * as z from 'zod'
import { statusFields } from './conditions.ts'
import { text } from './fields.ts'
import { objectRef } from './references.ts'
import { type Kind, pinned, ruled, set } from './resource.ts'

const Spec = z.object({
  authRef: objectRef().describe('The LdapAuth whose logins it concerns. Immutable.'),
  groupName: text(512).min(1).describe('Name of the group as the directory gives it. Immutable.'),
  policies: set(text(128).min(1), { max: 256 }).describe('Names of the policies that members get.'),
})

const Status = z.object({
  ...statusFields,
  engineGroup: text(1024).exactOptional().describe('Path of the mapping in the engine.'),
})

/** Policies for the members of a directory group. */
export const LdapGroupMapping = {
  kind: 'LdapGroupMapping',
  plural: 'ldapgroupmappings',
  shortName: 'lgm',
  scope: 'Cluster',
  description: 'Gives policies to the members of a directory group when they log in.',
  spec: ruled(Spec, pinned(Spec, ['authRef', 'groupName'])),
  status: Status,
  columns: [
    { name: 'Auth', path: '.spec.authRef.name' },
    { name: 'Group', path: '.spec.groupName' },
    { name: 'Policies', path: '.spec.policies' },
  ],
  selectableFields: ['.spec.authRef.name'],
} satisfies Kind
export type LdapGroupMappingSpec = z.output<typeof LdapGroupMapping.spec>
export type LdapGroupMappingStatus = z.output<typeof LdapGroupMapping.status>
