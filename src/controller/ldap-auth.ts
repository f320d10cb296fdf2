import type { Fields } from '../client/transport.ts'
import { valueAt } from '../lib/value-at.ts'
import { LdapAuth, type LdapAuthSpec } from '../schema/ldap-auth.ts'
import { LdapGroupMapping } from '../schema/ldap-group-mapping.ts'
import { statementFor } from './access.ts'
import { no, passed, unknown, yes } from './conditions.ts'
import { connectionFields, resolveReferences } from './directory-config.ts'
import { configWriter } from './ensure-config.ts'
import { disownMount, ensureMount } from './mount.ts'
import { kept, type Reconciler, type ReconcilerDeps } from './reconcile.ts'

/** LdapAuth → login mount and its configuration. */
export function authReconciler(deps: ReconcilerDeps): Reconciler<typeof LdapAuth.spec, typeof LdapAuth.status> {
  const { source, sink, engine, enqueue, centralNamespace } = deps
  const ensureConfig = configWriter(deps)

  return {
    kind: LdapAuth,
    conditions: ['Accepted', 'Synced', 'Connected'],
    async apply(context) {
      const { resource, spec, status, as, claim } = context
      const { name } = resource.metadata
      const path = spec.path ?? name
      const known = { ...kept(status), path }
      const resolved = await resolveReferences(source, centralNamespace, spec)
      if ('statement' in resolved) return { statements: [resolved.statement], fields: known }
      try {
        const wanted = {
          table: 'auth',
          path,
          description: spec.description ?? '',
          defaultLeaseTtlMs: 0,
          maxLeaseTtlMs: 0,
          lockout: lockoutFields(spec),
        } as const
        const mount = await ensureMount(deps, as, wanted, status.mountAccessor, claim)
        if ('statement' in mount) return { statements: passed(mount.statement), fields: known }
        const config = await ensureConfig({
          mount: `auth/${path}`,
          as,
          readable: { ...connectionFields(spec, resolved), ...loginFields(spec), ...tokenFields(spec) },
          hidden: {
            client_tls_cert: resolved.clientCert,
            client_tls_key: resolved.clientKey ?? '',
            // Read back as what they amount to, so they cannot be compared.
            userfilter: spec.userFilter ?? '',
            groupfilter: spec.groupFilter ?? '',
          },
          bindPassword: resolved.bindPassword,
          applied: status,
        })
        for (const note of config.notes) sink.event(resource, note)
        const wasSynced = status.conditions?.some(({ type, status: is }) => type === 'Synced' && is === 'True') ?? false
        if (!wasSynced) enqueueMappings(name)
        return {
          statements: [
            yes('Accepted', 'Accepted', 'As declared.'),
            config.refused === undefined
              ? yes('Synced', 'Synced', 'Mount and configuration in the engine are as declared.')
              : unknown('Synced', 'The mount is as declared; the configuration before stays in force.'),
            config.refused === undefined || config.connected.status === 'False'
              ? config.connected
              : no('Connected', 'BindFailed', config.refused),
          ],
          fields: {
            ...known,
            ...config.applied,
            mountAccessor: mount.accessor,
            mappings: mappingsOf(name).length,
          },
          lookAgainAt: config.lookAgainAt,
          ...(config.retry && { retry: config.retry }),
        }
      } catch (error) {
        const { statement, retry } = statementFor(error)
        return { statements: passed(statement), fields: known, ...(retry && { retry }) }
      }
    },

    async remove({ resource, spec, status, as, isForced }) {
      const { name } = resource.metadata
      const path = spec?.path ?? name
      if (spec?.deletionPolicy !== 'Delete' || isForced) {
        // It stays as it is, and everybody may change it from now on.
        if (status.mountAccessor !== undefined) await disownMount(engine, { table: 'auth', path }, as)
        return undefined
      }
      const mappings = mappingsOf(name).length
      if (mappings > 0) return no('Deleting', 'InUse', `${mappings} mappings use this mount: delete them first.`)
      await engine.delete(`sys/auth/${path}`, as)
      return undefined
    },
  }

  function mappingsOf(name: string) {
    return source.list(LdapGroupMapping.kind).filter(({ spec }) => valueAt(spec, 'authRef', 'name') === name)
  }

  function enqueueMappings(name: string): void {
    for (const { metadata } of mappingsOf(name)) enqueue({ kind: LdapGroupMapping.kind, name: metadata.name })
  }
}

/** Absent fields go back to their defaults, for a write keeps what it does not name. */
function loginFields(spec: LdapAuthSpec): Fields {
  return {
    connection_timeout: (spec.connectionTimeout ?? 30_000) / 1000,
    request_timeout: (spec.requestTimeout ?? 90_000) / 1000,
    case_sensitive_names: spec.caseSensitiveNames ?? false,
    binddn: spec.bindDN ?? '',
    userdn: spec.userDN ?? '',
    userattr: (spec.userAttr ?? 'cn').toLowerCase(),
    discoverdn: spec.discoverDN ?? false,
    deny_null_bind: spec.denyNullBind ?? true,
    upndomain: spec.upnDomain ?? '',
    enable_samaccountname_login: spec.enableSamaccountnameLogin ?? false,
    anonymous_group_search: spec.anonymousGroupSearch ?? false,
    groupdn: spec.groupDN ?? '',
    groupattr: spec.groupAttr ?? 'cn',
    use_token_groups: spec.useTokenGroups ?? true,
    username_as_alias: spec.usernameAsAlias ?? false,
    dereference_aliases: spec.dereferenceAliases ?? 'never',
    max_page_size: spec.maxPageSize ?? 0,
  }
}

function tokenFields({ token }: LdapAuthSpec): Fields {
  return {
    token_ttl: (token?.ttl ?? 0) / 1000,
    token_max_ttl: (token?.maxTTL ?? 0) / 1000,
    token_explicit_max_ttl: (token?.explicitMaxTTL ?? 0) / 1000,
    token_period: (token?.period ?? 0) / 1000,
    token_policies: token?.policies?.map((policy) => policy.toLowerCase()) ?? [],
    token_no_default_policy: token?.noDefaultPolicy ?? false,
    token_num_uses: token?.numUses ?? 0,
    token_bound_cidrs: token?.boundCIDRs ?? [],
    token_type: token?.type ?? 'default',
  }
}

function lockoutFields({ lockout }: LdapAuthSpec): Fields {
  return {
    lockout_threshold: lockout?.threshold ?? 5,
    lockout_duration: (lockout?.duration ?? 900_000) / 1000,
    lockout_counter_reset: (lockout?.counterReset ?? 900_000) / 1000,
    lockout_disable: lockout?.disabled ?? false,
  }
}
