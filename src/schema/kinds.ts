import { AccessPolicy } from './access-policy.ts'
import { LdapAuth } from './ldap-auth.ts'
import { LdapEngine } from './ldap-engine.ts'
import { LdapGroupMapping } from './ldap-group-mapping.ts'
import { LdapStaticRole } from './ldap-static-role.ts'
import type { Kind } from './resource.ts'

/** Every custom resource, in the order in which one needs the other. */
export const KINDS: readonly Kind[] = [AccessPolicy, LdapEngine, LdapAuth, LdapGroupMapping, LdapStaticRole]

export function findKind(kind: string): Kind | undefined {
  return KINDS.find((known) => known.kind === kind)
}
