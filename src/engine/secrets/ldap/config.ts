import { invalid } from '../../../lib/errors.ts'
import type { Values } from '../../../schema/answer.ts'
import {
  CONNECTION_DEFAULTS,
  requireAttribute,
  requireFilterTemplate,
  requireRotation,
  requireTls,
  requireUrls,
} from '../../../schema/ldap-connection.ts'
import { type LdapEngineConfig, LdapEngineConfigBody } from '../../../schema/ldap-engine-config.ts'
import type { DirectoryGuard } from '../../account/guard.ts'
import { type Call, type Route, route } from '../../backend.ts'
import { circuitValues } from '../../connection/circuit.ts'
import { proveBind } from '../../connection/proof.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { VersionConflict } from '../../storage/driver.ts'
import { publish, put, remove, type Store, type Stored } from '../../storage/store.ts'
import { bindIdentity, mountConnection } from './directory-access.ts'
import { decideOwner } from './ownership.ts'
import { configKind, type EngineConfig } from './records.ts'

/**
 * `config`: which directory the mount manages, and as whom. Writing it never contacts the directory, except that the controller
 * may have a new bind proven before it replaces another. A write is whole or nothing, keeps every field that it does not name, and takes
 * effect with the next operation.
 */
export function configRoute(deps: {
  readonly store: Store
  readonly door: Pick<DirectoryDoor, 'verify'>
  readonly guard: Pick<DirectoryGuard, 'state'>
  /** Called after every change, with what the configuration was and is. */
  readonly changed: (mountId: string, change: { before?: EngineConfig; after?: EngineConfig }) => Promise<void>
}): Route {
  const { store, door, guard } = deps
  return route<LdapEngineConfig>({
    pattern: 'config',
    body: LdapEngineConfigBody,
    exists: async ({ mount }) => (await store.read(configKind, mount.id)) !== undefined,
    async read({ mount, caller }) {
      const stored = await store.read(configKind, mount.id)
      if (!stored) return undefined
      const circuit = await circuitValues(guard, mount.id, caller)
      return { shape: 'envelope', data: { ...configValues(stored.value), ...circuit } }
    },
    async write(call) {
      for (;;) {
        const stored = await store.read(configKind, call.mount.id)
        const config = merge(stored?.value, call)
        if (call.fields.prove && stored)
          await proveBind(door, bindIdentity(stored.value), mountConnection(config), call.signal)
        const event = { type: 'config-write', mount: call.mount.path, path: 'config' }
        const { owner } = config
        try {
          await store.commit([
            put(configKind, call.mount.id, config, { expected: stored?.version ?? 0 }),
            publish({ ...event, ...(owner !== undefined && { owner }) }),
          ])
          await deps.changed(call.mount.id, { ...(stored && { before: stored.value }), after: config })
          return undefined
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
        }
      }
    },
    async delete(call) {
      const before = await deleteConfig(store, call)
      if (before) await deps.changed(call.mount.id, { before })
      return undefined
    },
  })
}

async function deleteConfig(
  store: Store,
  { mount, caller }: Call<LdapEngineConfig>,
): Promise<EngineConfig | undefined> {
  for (;;) {
    const stored = await store.read(configKind, mount.id)
    if (!stored) return undefined
    const owner = stored.value.owner ?? mount.owner
    decideOwner({ what: 'configuration', exists: true, owner, caller })
    try {
      await store.commit([
        remove(configKind, mount.id, { expected: stored.version }),
        publish({
          type: 'config-delete',
          mount: mount.path,
          path: 'config',
          ...(owner !== undefined && { owner }),
        }),
      ])
      return stored.value
    } catch (error) {
      if (!(error instanceof VersionConflict)) throw error
    }
  }
}

/** The configuration of a mount. Throws `invalid` when there is none. */
export async function requireConfig(store: Store, mountId: string): Promise<Stored<EngineConfig>> {
  const stored = await store.readRemembered(configKind, mountId)
  if (!stored) throw invalid('the mount is not configured: write its config first', { reason: 'not-configured' })
  return stored
}

const DEFAULT_USER_ATTR = { openldap: 'cn', ad: 'userPrincipalName', racf: 'racfid' } as const

/** The whole configuration as it would be after a write; throws `invalid` naming the field that is wrong. */
function merge(before: EngineConfig | undefined, { mount, caller, fields }: Call<LdapEngineConfig>): EngineConfig {
  const { adopt, disown, prove, ...given } = fields
  if (prove && !caller.isController) throw invalid('prove: only the controller may set it')
  const owner = decideOwner({
    what: 'configuration',
    exists: before !== undefined,
    owner: before?.owner ?? mount.owner,
    caller,
    adopt,
    disown,
  })
  if (given.length && given.passwordPolicy) throw invalid('length and password_policy must not be set together')
  const schema = given.schema ?? before?.schema ?? 'openldap'
  const bindDN = given.bindDN ?? before?.bindDN ?? ''
  const bindPassword = given.bindPassword ?? before?.bindPassword
  if (bindDN.trim() === '') throw invalid('binddn is required')
  if (!bindPassword || bindPassword.isEmpty) throw invalid('bindpass is required')
  const { owner: _, length, passwordPolicy, ...kept } = before ?? {}
  const config: EngineConfig = {
    ...kept,
    ...given,
    ...passwordRule({ length, passwordPolicy }, given),
    ...(owner !== undefined && { owner }),
    schema,
    urls: given.urls || !before ? requireUrls(given.urls ?? CONNECTION_DEFAULTS.urls) : before.urls,
    userAttr: given.userAttr || before?.userAttr || DEFAULT_USER_ATTR[schema],
    bindDN,
    bindPassword,
  }
  requireWhole(config)
  return config
}

interface PasswordRule {
  readonly length?: number | undefined
  readonly passwordPolicy?: string | undefined
}

/** Setting one of length and policy clears the other. */
function passwordRule(before: PasswordRule, given: PasswordRule): { length?: number; passwordPolicy?: string } {
  const length = given.passwordPolicy ? 0 : (given.length ?? before.length ?? 0)
  const policy = given.length ? '' : (given.passwordPolicy ?? before.passwordPolicy ?? '')
  return { length, passwordPolicy: policy }
}

function requireWhole(config: EngineConfig): void {
  if (config.startTLS && config.urls.some((url) => url.startsWith('ldaps:')))
    throw invalid('starttls cannot be used with ldaps:// URLs')
  requireTls(config)
  requireRotation(config)
  requireAttribute(config.userAttr, 'userattr')
  if (config.credentialType === 'phrase' && config.schema !== 'racf')
    throw invalid('credential_type: phrase can only be used with schema racf')
  requireFilterTemplate(config.userFilter ?? '', 'userfilter')
  requireFilterTemplate(config.groupFilter ?? '', 'groupfilter')
}

const DEFAULT_LENGTH = 64

/** What a read returns: everything but passwords and keys. Durations in seconds. */
function configValues(config: EngineConfig): Values {
  const seconds = (ms: number | undefined) => (ms ?? 0) / 1000
  return {
    binddn: config.bindDN,
    url: config.urls.join(','),
    schema: config.schema,
    credential_type: config.credentialType ?? 'password',
    length: config.passwordPolicy ? 0 : config.length || DEFAULT_LENGTH,
    ...(config.passwordPolicy && { password_policy: config.passwordPolicy }),
    skip_static_role_import_rotation: config.skipStaticRoleImportRotation ?? false,
    case_sensitive_names: config.caseSensitiveNames ?? false,
    connection_timeout: seconds(config.connectionTimeout || CONNECTION_DEFAULTS.connectionTimeout),
    request_timeout: seconds(config.requestTimeout || CONNECTION_DEFAULTS.requestTimeout),
    starttls: config.startTLS ?? false,
    insecure_tls: config.insecureTLS ?? false,
    tls_min_version: config.tlsMinVersion ?? CONNECTION_DEFAULTS.tlsMinVersion,
    tls_max_version: config.tlsMaxVersion ?? CONNECTION_DEFAULTS.tlsMaxVersion,
    certificate: config.certificate ?? '',
    client_tls_cert: config.clientTlsCert ?? '',
    userdn: config.userDN ?? '',
    userattr: config.userAttr,
    upndomain: config.upnDomain ?? '',
    userfilter: config.userFilter || CONNECTION_DEFAULTS.userFilter,
    discoverdn: config.discoverDN ?? false,
    deny_null_bind: config.denyNullBind ?? true,
    anonymous_group_search: config.anonymousGroupSearch ?? false,
    groupdn: config.groupDN ?? '',
    groupattr: config.groupAttr || CONNECTION_DEFAULTS.groupAttr,
    groupfilter: config.groupFilter || CONNECTION_DEFAULTS.groupFilter,
    username_as_alias: config.usernameAsAlias ?? false,
    use_token_groups: config.useTokenGroups ?? true,
    use_pre111_group_cn_behavior: config.usePre111GroupCnBehavior ?? false,
    dereference_aliases: config.dereferenceAliases ?? CONNECTION_DEFAULTS.dereferenceAliases,
    max_page_size: config.maxPageSize ?? 0,
    enable_samaccountname_login: config.enableSamaccountnameLogin ?? false,
    ttl: seconds(config.ttl),
    max_ttl: seconds(config.maxTtl),
    rotation_period: seconds(config.rotationPeriod),
    rotation_schedule: config.rotationSchedule ?? '',
    rotation_window: seconds(config.rotationWindow),
    disable_automated_rotation: config.disableAutomatedRotation ?? false,
    ...(config.owner !== undefined && { owner: config.owner }),
  }
}
