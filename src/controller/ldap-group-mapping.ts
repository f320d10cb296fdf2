import { AppError } from '../lib/errors.ts'
import { valueAt } from '../lib/value-at.ts'
import { LdapAuth } from '../schema/ldap-auth.ts'
import { LdapGroupMapping, type LdapGroupMappingSpec } from '../schema/ldap-group-mapping.ts'
import { no, yes } from './conditions.ts'
import { kept, type Reconciler, type ReconcilerDeps } from './reconcile.ts'

/** LdapGroupMapping → `auth/<path>/groups/<name>`. */
export function groupMappingReconciler(
  deps: ReconcilerDeps,
): Reconciler<typeof LdapGroupMapping.spec, typeof LdapGroupMapping.status> {
  const { source, sink, engine, enqueue, isGone } = deps
  return {
    kind: LdapGroupMapping,
    conditions: ['Accepted', 'Synced'],
    async apply({ resource, spec, status, as, claim }) {
      const path = groupPath(spec)
      if (path === undefined) {
        const message = `There is no LdapAuth ${spec.authRef.name}.`
        return { statements: [no('Accepted', 'AuthNotFound', message)], fields: kept(status) }
      }
      let seen = await engine.read(path, as)
      const owner = String(seen?.['owner'] ?? '')
      if (seen && owner !== '' && owner !== as.owner && !isGone(owner))
        return {
          statements: [no('Accepted', 'NameConflict', 'Another resource maps this group.')],
          fields: kept(status),
        }
      await claim()
      if (seen && owner !== as.owner) {
        // What a group may do is what the manifest says: a mapping made otherwise is replaced, and what it gave can be read here.
        const note = `a mapping made otherwise is replaced; its policies were ${String(seen['policies']) || 'none'}`
        sink.event(resource, { type: 'Normal', reason: 'Adopted', note: note.slice(0, 900), action: 'Reconcile' })
      }
      if (owner !== '' && owner !== as.owner) {
        await engine.delete(path, { owner })
        seen = undefined
      }
      if (!seen || owner === '' || !sameSet(seen['policies'], spec.policies))
        await engine.write(path, { policies: spec.policies, ...(seen && owner === '' && { adopt: true }) }, as)
      if (status.engineGroup === undefined) enqueue({ kind: LdapAuth.kind, name: spec.authRef.name }, { afterMs: 2000 })
      return {
        statements: [
          yes('Accepted', 'Accepted', 'As declared.'),
          yes('Synced', 'Synced', 'The mapping in the engine is as declared.'),
        ],
        fields: { engineGroup: path },
      }
    },
    async remove({ spec, status, as }) {
      const path = status.engineGroup ?? (spec && groupPath(spec))
      if (path === undefined) return undefined
      const seen = await engine.read(path, as).catch((error: unknown) => {
        if (isAbsent(error)) return undefined
        throw error
      })
      if (seen && seen['owner'] === as.owner) await engine.delete(path, as)
      if (spec) enqueue({ kind: LdapAuth.kind, name: spec.authRef.name }, { afterMs: 1000 })
      return undefined
    },
  }

  function groupPath({ authRef, groupName }: LdapGroupMappingSpec): string | undefined {
    const auth = source.get({ kind: LdapAuth.kind, name: authRef.name })
    if (!auth || auth.metadata.deletionTimestamp) return undefined
    const path = valueAt(auth.spec, 'path')
    return `auth/${typeof path === 'string' ? path : authRef.name}/groups/${groupName}`
  }
}

/** Policies are a set: the engine sorts and lower-cases them. */
function sameSet(seen: unknown, wanted: readonly string[]): boolean {
  const normal = (names: readonly unknown[]) =>
    [...new Set(names.map((name) => String(name).trim().toLowerCase()))].sort().join()
  return Array.isArray(seen) && normal(seen) === normal(wanted)
}

/** The mount is gone, and the mapping with it. */
function isAbsent(error: unknown): boolean {
  return error instanceof AppError && error.kind === 'not-found'
}
