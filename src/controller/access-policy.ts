import { createHash } from 'node:crypto'
import { valueAt } from '../lib/value-at.ts'
import { AccessPolicy, type AccessPolicySpec } from '../schema/access-policy.ts'
import { LdapAuth } from '../schema/ldap-auth.ts'
import { LdapGroupMapping } from '../schema/ldap-group-mapping.ts'
import { textOf } from './access.ts'
import { no, yes } from './conditions.ts'
import { kept, type Reconciler, type ReconcilerDeps } from './reconcile.ts'

/** AccessPolicy → the ACL policy of its name. */
export function accessPolicyReconciler(
  deps: ReconcilerDeps,
): Reconciler<typeof AccessPolicy.spec, typeof AccessPolicy.status> {
  const { source, engine, isGone } = deps
  return {
    kind: AccessPolicy,
    conditions: ['Accepted', 'Synced'],
    async apply({ resource, spec, status, as, claim }) {
      const { name } = resource.metadata
      const path = `sys/policies/acl/${name}`
      const text = policyText(spec)
      const usedBy = usersOf(name).length
      let seen = await engine.read(path, as)
      const owner = seen ? textOf(seen, 'owner') : ''
      if (seen && owner === '' && status.hash === undefined)
        return {
          statements: [
            yes('Accepted', 'Accepted', 'As declared.'),
            no(
              'Synced',
              'OwnedByApi',
              'A policy of this name was made through the API: delete it there, or choose another name.',
            ),
          ],
          fields: { ...kept(status), usedBy },
        }
      await claim()
      if (owner !== as.owner && isGone(owner)) {
        await engine.delete(path, { owner })
        seen = undefined
      }
      if (!seen || owner !== as.owner || textOf(seen, 'policy') !== text) await engine.write(path, { policy: text }, as)
      return {
        statements: [
          yes('Accepted', 'Accepted', 'As declared.'),
          yes('Synced', 'Synced', 'The policy in the engine is as declared.'),
        ],
        fields: { hash: createHash('sha256').update(text).digest('hex'), usedBy },
      }
    },
    async remove({ resource, as, isForced }) {
      const { name } = resource.metadata
      const users = usersOf(name).length
      if (users > 0 && !isForced)
        return no('Deleting', 'InUse', `${users} mappings or login mounts give this policy: change them first.`)
      const path = `sys/policies/acl/${name}`
      const seen = await engine.read(path, as)
      if (seen && textOf(seen, 'owner') === as.owner) await engine.delete(path, as)
      return undefined
    },
  }

  /** Resources that give this policy to who logs in. */
  function usersOf(name: string) {
    const mappings = source.list(LdapGroupMapping.kind).filter(({ spec }) => names(valueAt(spec, 'policies'), name))
    const mounts = source.list(LdapAuth.kind).filter(({ spec }) => names(valueAt(spec, 'token', 'policies'), name))
    return [...mappings, ...mounts]
  }
}

/** Whether a list of an unparsed spec names a policy; their names know no case. */
function names(list: unknown, policy: string): boolean {
  return Array.isArray(list) && list.some((name) => String(name).trim().toLowerCase() === policy)
}

/** The text of a policy: as it was given, or its rules as JSON; several rules for one path stand in a list. */
export function policyText({ rules, policy }: AccessPolicySpec): string {
  if (policy !== undefined) return policy
  const paths = new Map<string, unknown[]>()
  for (const rule of rules ?? []) {
    const block = {
      capabilities: rule.capabilities,
      ...(rule.allowedParameters && { allowed_parameters: rule.allowedParameters }),
      ...(rule.deniedParameters && { denied_parameters: rule.deniedParameters }),
      ...(rule.requiredParameters && { required_parameters: rule.requiredParameters }),
    }
    paths.set(rule.path, [...(paths.get(rule.path) ?? []), block])
  }
  const body = [...paths].map(([path, blocks]) => [path, blocks.length === 1 ? blocks[0] : blocks])
  return JSON.stringify({ path: Object.fromEntries(body) })
}
