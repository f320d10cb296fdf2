import { invalid } from '../../../lib/errors.ts'
import type { Values } from '../../../schema/answer.ts'
import { requireAttribute, requireRotation, requireTls, requireUrls } from '../../../schema/ldap-connection.ts'
import { normalizePolicies, requireTokenFields } from '../../../schema/token-fields.ts'
import type { DirectoryGuard } from '../../account/guard.ts'
import { type Call, type Route, route } from '../../backend.ts'
import { circuitValues } from '../../connection/circuit.ts'
import { isSameConnection, type MountConnection } from '../../connection/connection.ts'
import { proveBind } from '../../connection/proof.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { parseFilter } from '../../directory/filter.ts'
import { retryConflicts } from '../../storage/retry.ts'
import { publish, put, type Store } from '../../storage/store.ts'
import { requireWritable } from '../../tenancy/owner.ts'
import { requireCidrs } from '../../token/cidr.ts'
import { ANONYMOUS, effective, findsByUserAttr } from './effective.ts'
import { renderFilter, requirePlaces } from './filter-template.ts'
import { type ConfigFields, configBody, configKind, type LdapAuthConfig } from './records.ts'

/**
 * `config` of the LDAP login method (SPECIFICATION 2.2). Writes are partial and never contact the directory, except that the
 * controller may have a new bind proven before it replaces another.
 */
export function configRoutes(deps: {
  readonly store: Store
  readonly door: DirectoryDoor
  readonly guard: DirectoryGuard
}): Route[] {
  const { store, door, guard } = deps
  return [
    route({
      pattern: 'config',
      body: configBody,
      async read({ mount, caller }) {
        const found = await store.read(configKind, mount.id)
        const circuit = await circuitValues(guard, mount.id, caller)
        return { shape: 'envelope', data: { ...shown(found?.value ?? {}), ...circuit } }
      },
      write: (call) =>
        retryConflicts(async () => {
          const { mount, caller } = call
          const found = await store.read(configKind, mount.id)
          const before = found?.value ?? {}
          requireWritable(before.owner, caller, `the configuration of ${mount.path}`)
          for (const name of ['disown', 'prove'] as const)
            if (call.fields[name] && !caller.isController) throw invalid(`${name}: only the controller may set it`)
          const { owner: known, ...kept } = before
          const owner = call.fields.disown ? undefined : (caller.owner ?? known)
          const after = { ...kept, ...given(call), ...(owner !== undefined && { owner }) }
          check(after)
          warn(call, after)
          const { settings, service } = effective(after)
          if (call.fields.prove && found && service)
            await proveBind(door, effective(before).service, { settings, identity: service }, call.signal)
          await store.commit([
            put(configKind, mount.id, after, { expected: found?.version ?? 0 }),
            publish({
              type: 'config-write',
              mount: mount.path,
              path: 'config',
              ...(after.owner && { owner: after.owner }),
            }),
          ])
          if (found && isSameConnection(connectionOf(before), connectionOf(after))) return undefined
          door.forget(effective(before).settings)
          await guard.reset(mount.id)
          return undefined
        }),
    }),
  ]
}

function connectionOf(config: LdapAuthConfig): MountConnection {
  const { settings, service } = effective(config)
  return { settings, identity: service ?? ANONYMOUS }
}

/** The supplied fields as they are stored. */
function given({ fields }: Call<Required<ConfigFields>>): LdapAuthConfig {
  const { policies, disown: _, prove: __, ...rest } = fields
  // The deprecated alias counts only where the new name is absent (SPECIFICATION 9).
  const tokenPolicies = rest.tokenPolicies ?? policies
  return {
    ...rest,
    ...(rest.urls && { urls: requireUrls(rest.urls) }),
    ...(rest.userAttr !== undefined && { userAttr: rest.userAttr.toLowerCase() }),
    ...(tokenPolicies && { tokenPolicies: normalizePolicies(tokenPolicies) }),
    ...(policies && { policies: normalizePolicies(policies) }),
  }
}

function check(config: LdapAuthConfig): void {
  requireTls(config)
  requireRotation(config)
  requireTokenFields(config)
  requireCidrs(config.tokenBoundCidrs ?? [], 'token_bound_cidrs')
  const { userFilter, groupFilter, userAttr, groupAttr, settings } = effective(config)
  if (settings.startTls && settings.urls.some((url) => url.startsWith('ldaps:')))
    throw invalid('starttls cannot be used with ldaps:// URLs')
  requireAttribute(userAttr, 'userattr')
  requireAttribute(groupAttr, 'groupattr')
  requirePlaces(userFilter, ['UserAttr', 'Username'], 'userfilter')
  requirePlaces(groupFilter, ['UserDN', 'Username'], 'groupfilter')
  const sample = { UserAttr: 'cn', Username: 'x', UserDN: 'cn=x' }
  requireFilter(renderFilter(userFilter, sample), 'userfilter')
  requireFilter(renderFilter(groupFilter, sample), 'groupfilter')
  if (config.enableSamaccountnameLogin && !config.upnDomain)
    throw invalid('enable_samaccountname_login needs upndomain')
}

function requireFilter(filter: string, field: string): void {
  try {
    parseFilter(filter)
  } catch (error) {
    throw invalid(`${field} is not a valid search filter`, { cause: error })
  }
}

function warn(call: Call<Required<ConfigFields>>, config: LdapAuthConfig): void {
  if (!findsByUserAttr(effective(config)))
    call.warn('userfilter contains neither {{.UserAttr}} nor the user attribute: a login may find several users')
  if (config.denyNullBind === false)
    call.warn('deny_null_bind is false: a directory that accepts empty passwords lets anybody log in as anybody')
}

/** What a read tells: everything but keys and passwords, effective where a default applies. */
function shown(config: LdapAuthConfig): Values {
  const now = effective(config)
  return {
    anonymous_group_search: now.anonymousGroupSearch,
    binddn: now.bindDN,
    bindpass: '',
    case_sensitive_names: now.caseSensitiveNames,
    certificate: config.certificate ?? '',
    connection_timeout: now.settings.connectionTimeoutMs / 1000,
    deny_null_bind: now.denyNullBind,
    dereference_aliases: now.settings.dereferenceAliases,
    disable_automated_rotation: config.disableAutomatedRotation ?? false,
    discoverdn: now.discoverDN,
    enable_samaccountname_login: now.enableSamaccountnameLogin,
    groupattr: now.groupAttr,
    groupdn: now.groupDN,
    groupfilter: now.groupFilter,
    insecure_tls: now.settings.insecureTls,
    max_page_size: now.settings.maxPageSize,
    password_policy: config.passwordPolicy ?? '',
    request_timeout: now.settings.requestTimeoutMs / 1000,
    rotation_period: (config.rotationPeriod ?? 0) / 1000,
    rotation_schedule: config.rotationSchedule ?? '',
    rotation_schema: config.rotationSchema || 'openldap',
    rotation_window: (config.rotationWindow ?? 0) / 1000,
    starttls: now.settings.startTls,
    tls_max_version: now.settings.tlsMaxVersion,
    tls_min_version: now.settings.tlsMinVersion,
    token_bound_cidrs: now.token.boundCidrs,
    token_explicit_max_ttl: now.token.explicitMaxTtlMs / 1000,
    token_max_ttl: now.token.maxTtlMs / 1000,
    token_no_default_policy: now.token.noDefaultPolicy,
    token_num_uses: now.token.numUses,
    token_period: now.token.periodMs / 1000,
    token_policies: now.token.policies,
    token_ttl: now.token.ttlMs / 1000,
    token_type: config.tokenType || 'default',
    ...(config.policies && { policies: config.policies }),
    upndomain: now.upnDomain,
    url: now.settings.urls.join(','),
    use_pre111_group_cn_behavior: config.usePre111GroupCnBehavior ?? false,
    use_token_groups: now.useTokenGroups,
    userattr: now.userAttr,
    userdn: now.userDN,
    userfilter: now.userFilter,
    username_as_alias: now.usernameAsAlias,
    ...(config.owner && { owner: config.owner }),
  }
}
