import { valueAt } from '../lib/value-at.ts'
import { LdapEngine, type LdapEngineSpec, type LdapEngineStatus } from '../schema/ldap-engine.ts'
import { LdapStaticRole } from '../schema/ldap-static-role.ts'
import { type As, statementFor } from './access.ts'
import { no, passed, type Statement, unknown, yes } from './conditions.ts'
import { connectionFields, type Resolved, resolveReferences } from './directory-config.ts'
import { configWriter, type EnsuredConfig, type WantedConfig } from './ensure-config.ts'
import { disownMount, ensureMount } from './mount.ts'
import { kept, type Reconciler, type ReconcilerDeps } from './reconcile.ts'
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
  const { source, sink, engine, enqueue, centralNamespace } = deps
  const ensureConfig = configWriter(deps)

  return {
    kind: LdapEngine,
    conditions: ['Accepted', 'Synced', 'Connected', 'RootCredential'],
    async apply(context) {
      const { resource, spec, status, as, claim } = context
      const { name } = resource.metadata
      const path = spec.path ?? name
      const known = { ...kept(status), path, schema: spec.schema ?? 'openldap' }
      const resolved = await resolveReferences(source, centralNamespace, spec)
      if ('statement' in resolved) return { statements: [resolved.statement], fields: known }
      const rival = source.list(LdapEngine.kind).find((other) => other.metadata.name !== name && pathOf(other) === path)
      if (rival && isOlder(rival.metadata, resource.metadata)) {
        const message = `The LdapEngine ${rival.metadata.name} has this path.`
        return { statements: [no('Accepted', 'NameConflict', message)], fields: known }
      }
      try {
        const wanted = {
          table: 'mounts',
          path,
          description: spec.description ?? '',
          defaultLeaseTtlMs: spec.defaultLeaseTTL ?? 0,
          maxLeaseTtlMs: spec.maxLeaseTTL ?? 0,
        } as const
        const mount = await ensureMount(deps, as, wanted, status.mountAccessor, claim)
        if ('statement' in mount) return { statements: passed(mount.statement), fields: known }
        const namespaces = await labelsOfTenants()
        const table = await ensureTenancy(path, spec, as, namespaces)
        const config = await ensureConfig({
          mount: path,
          as,
          ...configFields(spec, resolved),
          bindPassword: resolved.bindPassword,
          applied: status,
        })
        for (const note of config.notes) sink.event(resource, note)
        const before = deps.resolved.get(name)
        deps.resolved.set(name, new Set(namespaces.keys()))
        // While the configuration is refused nothing is new to the roles, however often they ask for this to be looked at.
        const isMended =
          config.refused === undefined &&
          (wasNot(status, 'Synced') || (wasNot(status, 'Connected') && config.circuit === 'Closed'))
        if (table.changed || config.changed || isMended) enqueueRoles(name)
        else enqueueRoles(name, (namespace) => !before?.has(namespace))
        return {
          statements: [
            yes('Accepted', 'Accepted', 'As declared.'),
            config.refused === undefined
              ? yes('Synced', 'Synced', 'Mount, configuration and tenancy in the engine are as declared.')
              : unknown('Synced', 'Mount and tenancy are as declared; the configuration before stays in force.'),
            config.connected,
            rootCredential(spec, config),
          ],
          fields: {
            ...known,
            ...config.applied,
            mountAccessor: mount.accessor,
            rootCredential: { source: 'FromSecret' },
            circuit: config.circuit,
            roles: { static: rolesOf(name).length },
          },
          lookAgainAt: config.lookAgainAt,
          ...(config.retry && { retry: config.retry }),
        }
      } catch (error) {
        const { statement, retry } = statementFor(error)
        return { statements: passed(statement), fields: known, ...(retry && { retry }) }
      }
    },

    async remove({ resource, spec, as, status, isForced }) {
      const { name } = resource.metadata
      const path = spec?.path ?? name
      const users = rolesOf(name).length
      if (users > 0 && !isForced) return no('Deleting', 'InUse', `${users} roles use this mount: delete them first.`)
      deps.resolved.delete(name)
      if (spec?.deletionPolicy !== 'Delete' || isForced) {
        if (status.mountAccessor !== undefined) await disownMount(engine, { table: 'mounts', path }, as)
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
    return source.list(LdapStaticRole.kind).filter(({ spec }) => valueAt(spec, 'engineRef', 'name') === name)
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
}

function isOlder(one: ObjectMeta, other: ObjectMeta): boolean {
  const difference = one.creationTimestamp.getTime() - other.creationTimestamp.getTime()
  return difference < 0 || (difference === 0 && one.name < other.name)
}

function pathOf({ metadata, spec }: { metadata: { name: string }; spec: unknown }): unknown {
  return valueAt(spec, 'path') ?? metadata.name
}

function configFields(spec: LdapEngineSpec, resolved: Resolved): Pick<WantedConfig, 'readable' | 'hidden'> {
  return {
    readable: {
      ...connectionFields(spec, resolved),
      binddn: spec.bindDN,
      schema: spec.schema ?? 'openldap',
      userdn: spec.userDN ?? '',
      userattr: spec.userAttr ?? DEFAULT_USER_ATTR[spec.schema ?? 'openldap'],
      upndomain: spec.upnDomain ?? '',
      request_timeout: (spec.requestTimeout ?? 90_000) / 1000,
      skip_static_role_import_rotation: spec.skipStaticRoleImportRotation ?? false,
    },
    hidden: { client_tls_cert: resolved.clientCert, client_tls_key: resolved.clientKey ?? '' },
  }
}

function rootCredential({ bindDN }: LdapEngineSpec, { refused, connected }: EnsuredConfig): Statement {
  const type = 'RootCredential'
  if (refused !== undefined) return no(type, connected.reason === 'Unreachable' ? 'Unproven' : 'BindFailed', refused)
  if (connected.reason === 'BindFailed')
    return no(type, 'BindFailed', `The directory refuses the password of ${bindDN}.`)
  return yes(type, 'FromSecret', `The password of ${bindDN} is the one of the Secret.`)
}

function wasNot({ conditions }: Partial<LdapEngineStatus>, type: string): boolean {
  return conditions?.find((one) => one.type === type)?.status !== 'True'
}
