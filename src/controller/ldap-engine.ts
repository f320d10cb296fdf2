import { LdapEngine, type LdapEngineSpec, type LdapEngineStatus } from '../schema/ldap-engine.ts'
import { LdapStaticRole } from '../schema/ldap-static-role.ts'
import { type As, statementFor } from './access.ts'
import { no, type Statement, yes } from './conditions.ts'
import { connectionFields, decideConfig, type Resolved, resolveReferences } from './directory-config.ts'
import { ensureMount } from './mount.ts'
import { type Context, kept, type Outcome, type Reconciler, type ReconcilerDeps } from './reconcile.ts'
import { canonical } from './runtime/status.ts'
import type { ObjectMeta } from './source/source.ts'
import { type NamespaceLabels, tenancyTable } from './tenancy.ts'

/*
 * LdapEngine → mount, configuration and tenancy table. Order: the tenancy table is in force before the configuration makes the mount
 * usable, so that no tenant ever meets a mount that is open.
 */

const DEFAULT_USER_ATTR = { openldap: 'cn', ad: 'userPrincipalName', racf: 'racfid' } as const

/** Remembers for which namespaces each engine's selectors were resolved; empty after a start, and then every engine is reconciled. */
export interface TenancyMemory {
  readonly resolved: Map<string, ReadonlySet<string>>
}

export function engineReconciler(
  deps: ReconcilerDeps & TenancyMemory,
): Reconciler<typeof LdapEngine.spec, typeof LdapEngine.status> {
  const { source, engine, enqueue, mac, centralNamespace } = deps

  return {
    kind: LdapEngine,
    conditions: ['Accepted', 'Synced', 'RootCredential'],
    async apply(context) {
      const { resource, spec, status, as, claim } = context
      const { name } = resource.metadata
      const resolved = await resolveReferences(source, centralNamespace, spec)
      if ('statement' in resolved) return { statements: [resolved.statement], fields: kept(status) }
      const path = spec.path ?? name
      const rival = source.list(LdapEngine.kind).find((other) => other.metadata.name !== name && pathOf(other) === path)
      if (rival && isOlder(rival.metadata, resource.metadata))
        return refused(context, no('Accepted', 'NameConflict', `The LdapEngine ${rival.metadata.name} has this path.`))
      const accepted = yes('Accepted', 'Accepted', 'As declared.')
      try {
        const wanted = {
          table: 'mounts',
          path,
          description: spec.description ?? '',
          defaultLeaseTtlMs: spec.defaultLeaseTTL ?? 0,
          maxLeaseTtlMs: spec.maxLeaseTTL ?? 0,
        } as const
        const mount = await ensureMount(engine, as, wanted, status.mountAccessor, claim)
        if ('statement' in mount) return refused(context, accepted, mount.statement)
        const namespaces = await labelsOfTenants()
        const table = await ensureTenancy(path, spec, as, namespaces)
        const config = await ensureConfig(context, path, resolved)
        const before = deps.resolved.get(name)
        deps.resolved.set(name, new Set(namespaces.keys()))
        const wasSynced = status.conditions?.some(({ type, status: is }) => type === 'Synced' && is === 'True') ?? false
        if (table.changed || config.changed || !wasSynced) enqueueRoles(name)
        else enqueueRoles(name, (namespace) => !before?.has(namespace))
        return {
          statements: [
            accepted,
            yes('Synced', 'Synced', 'Mount, configuration and tenancy in the engine are as declared.'),
            yes('RootCredential', 'FromSecret', `The password of ${spec.bindDN} is the one of the Secret.`),
          ],
          fields: {
            mountAccessor: mount.accessor,
            rootCredential: { source: 'FromSecret' },
            bindSecretMAC: config.bindSecretMAC,
            configMAC: config.configMAC,
            roles: { static: rolesOf(name).length },
          },
        }
      } catch (error) {
        const { statement, retry } = statementFor(error)
        return { ...refused(context, accepted, statement), ...(retry && { retry }) }
      }
    },

    async remove({ resource, spec, as, status }) {
      const { name } = resource.metadata
      const path = spec?.path ?? name
      const users = rolesOf(name).length
      if (users > 0) return no('Deleting', 'InUse', `${users} roles use this mount: delete them first.`)
      deps.resolved.delete(name)
      if (spec?.deletionPolicy !== 'Delete') {
        if (status.mountAccessor !== undefined) await disown(path, as)
        return undefined
      }
      const left = (await engine.list(`${path}/static-role`, as)).length
      if (left > 0)
        return no(
          'Deleting',
          'InUse',
          `${left} roles of the API use this mount: delete them first, or set deletionPolicy: Retain.`,
        )
      await engine.delete(`sys/mounts/${path}`, as)
      return undefined
    },
  }

  function rolesOf(name: string) {
    return source.list(LdapStaticRole.kind).filter(({ spec }) => engineNameOf(spec) === name)
  }

  function enqueueRoles(name: string, where: (namespace: string) => boolean = () => true): void {
    for (const { metadata } of rolesOf(name))
      if (where(metadata.namespace ?? ''))
        enqueue({ kind: LdapStaticRole.kind, name: metadata.name, namespace: metadata.namespace ?? '' })
  }

  /** Labels of every namespace that holds an object which a tenancy could concern. */
  async function labelsOfTenants(): Promise<NamespaceLabels> {
    const names = new Set(source.list(LdapStaticRole.kind).map(({ metadata }) => metadata.namespace ?? ''))
    const labels = await Promise.all(
      [...names].map(async (name) => [name, (await source.namespaceLabels(name)) ?? {}] as const),
    )
    return new Map(labels)
  }

  async function ensureTenancy(path: string, spec: LdapEngineSpec, as: As, namespaces: NamespaceLabels) {
    const wanted = tenancyTable(spec, namespaces)
    const seen = await engine.read(`sys/tenancy/${path}`, as)
    if (canonical(seen?.['entries'] ?? []) === canonical(wanted.entries)) return { changed: false }
    await engine.write(`sys/tenancy/${path}`, wanted, as)
    return { changed: true }
  }

  async function ensureConfig(
    { spec, status, as }: Context<LdapEngineSpec, LdapEngineStatus>,
    path: string,
    resolved: Resolved,
  ) {
    const config = await engine.read(`${path}/config`, as)
    const readable = {
      ...connectionFields(spec, resolved),
      binddn: spec.bindDN,
      schema: spec.schema ?? 'openldap',
      userdn: spec.userDN ?? '',
      userattr: spec.userAttr ?? DEFAULT_USER_ATTR[spec.schema ?? 'openldap'],
      upndomain: spec.upnDomain ?? '',
      request_timeout: (spec.requestTimeout ?? 90_000) / 1000,
      skip_static_role_import_rotation: spec.skipStaticRoleImportRotation ?? false,
    }
    const hidden = { client_tls_cert: resolved.clientCert, client_tls_key: resolved.clientKey ?? '' }
    const step = decideConfig(readable, hidden, resolved.bindPassword, { config, applied: status }, mac)
    if (step.write) await engine.write(`${path}/config`, step.write, as)
    return { ...step, changed: step.write !== undefined }
  }

  async function disown(path: string, as: As): Promise<void> {
    const config = await engine.read(`${path}/config`, as)
    if (config?.['owner'] === as.owner) await engine.write(`${path}/config`, { disown: true }, as)
    await engine.write(`sys/mounts/${path}`, { disown: true }, as)
  }
}

function isOlder(one: ObjectMeta, other: ObjectMeta): boolean {
  const difference = one.creationTimestamp.getTime() - other.creationTimestamp.getTime()
  return difference < 0 || (difference === 0 && one.name < other.name)
}

function engineNameOf(spec: unknown): unknown {
  const ref: unknown = typeof spec === 'object' && spec !== null ? Reflect.get(spec, 'engineRef') : undefined
  return typeof ref === 'object' && ref !== null ? Reflect.get(ref, 'name') : undefined
}

function pathOf({ metadata, spec }: { metadata: { name: string }; spec: unknown }): unknown {
  return (typeof spec === 'object' && spec !== null ? Reflect.get(spec, 'path') : undefined) ?? metadata.name
}

function refused({ status }: { status: object }, ...statements: Statement[]): Outcome {
  return { statements, fields: kept(status) }
}
