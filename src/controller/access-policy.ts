import { createHash } from 'node:crypto'
import { AccessPolicy, type AccessPolicySpec } from '../schema/access-policy.ts'
import { textOf } from './access.ts'
import { no, yes } from './conditions.ts'
import { kept, type Reconciler, type ReconcilerDeps } from './reconcile.ts'

/** AccessPolicy → the ACL policy of its name. */
export function accessPolicyReconciler(
  deps: ReconcilerDeps,
): Reconciler<typeof AccessPolicy.spec, typeof AccessPolicy.status> {
  const { engine } = deps
  return {
    kind: AccessPolicy,
    conditions: ['Accepted', 'Synced'],
    async apply({ resource, spec, status, as, claim }) {
      const path = `sys/policies/acl/${resource.metadata.name}`
      const text = policyText(spec)
      const seen = await engine.read(path, as)
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
          fields: kept(status),
        }
      await claim()
      if (!seen || owner !== as.owner || textOf(seen, 'policy') !== text) await engine.write(path, { policy: text }, as)
      return {
        statements: [
          yes('Accepted', 'Accepted', 'As declared.'),
          yes('Synced', 'Synced', 'The policy in the engine is as declared.'),
        ],
        fields: { hash: createHash('sha256').update(text).digest('hex') },
      }
    },
    async remove({ resource, as }) {
      const path = `sys/policies/acl/${resource.metadata.name}`
      const seen = await engine.read(path, as)
      if (seen && textOf(seen, 'owner') === as.owner) await engine.delete(path, as)
      return undefined
    },
  }
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
