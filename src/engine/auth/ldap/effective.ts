import { derived } from '../../../lib/derived.ts'
import { Secret } from '../../../lib/secret.ts'
import { CONNECTION_DEFAULTS } from '../../../schema/ldap-connection.ts'
import type { TokenSettings } from '../../backend.ts'
import { connectionSettings } from '../../connection/connection.ts'
import type { BindIdentity, DirectorySettings } from '../../directory/directory.ts'
import type { LdapAuthConfig } from './records.ts'

/** A configuration with every default filled in (SPECIFICATION 2.2, with its effective defaults). */
export interface Effective {
  readonly settings: DirectorySettings
  /** The service's own identity; absent unless both name and password are set. */
  readonly service: BindIdentity | undefined
  readonly bindDN: string
  readonly userDN: string
  readonly userAttr: string
  readonly userFilter: string
  readonly discoverDN: boolean
  readonly denyNullBind: boolean
  readonly upnDomain: string
  readonly anonymousGroupSearch: boolean
  readonly groupFilter: string
  readonly groupDN: string
  readonly groupAttr: string
  readonly usernameAsAlias: boolean
  readonly useTokenGroups: boolean
  readonly enableSamaccountnameLogin: boolean
  readonly caseSensitiveNames: boolean
  readonly token: TokenSettings
}

export const ANONYMOUS: BindIdentity = { name: '', password: new Secret('') }

export const effective = derived((config: LdapAuthConfig): Effective => {
  const password = config.bindPassword
  const bindDN = config.bindDN ?? ''
  return {
    settings: connectionSettings(config),
    service: bindDN !== '' && password && !password.isEmpty ? { name: bindDN, password } : undefined,
    bindDN,
    userDN: config.userDN ?? '',
    userAttr: config.userAttr || 'cn',
    userFilter: config.userFilter || CONNECTION_DEFAULTS.userFilter,
    discoverDN: config.discoverDN ?? false,
    denyNullBind: config.denyNullBind ?? true,
    upnDomain: config.upnDomain ?? '',
    anonymousGroupSearch: config.anonymousGroupSearch ?? false,
    groupFilter: config.groupFilter || CONNECTION_DEFAULTS.groupFilter,
    groupDN: config.groupDN ?? '',
    groupAttr: config.groupAttr || CONNECTION_DEFAULTS.groupAttr,
    usernameAsAlias: config.usernameAsAlias ?? false,
    useTokenGroups: config.useTokenGroups ?? true,
    enableSamaccountnameLogin: config.enableSamaccountnameLogin ?? false,
    caseSensitiveNames: config.caseSensitiveNames ?? false,
    token: {
      ttlMs: config.tokenTtl ?? 0,
      maxTtlMs: config.tokenMaxTtl ?? 0,
      explicitMaxTtlMs: config.tokenExplicitMaxTtl ?? 0,
      periodMs: config.tokenPeriod ?? 0,
      policies: config.tokenPolicies ?? [],
      noDefaultPolicy: config.tokenNoDefaultPolicy ?? false,
      numUses: config.tokenNumUses ?? 0,
      boundCidrs: config.tokenBoundCidrs ?? [],
      type: 'service',
    },
  }
})

/** Whether a user is found by the attribute that names her. */
export function findsByUserAttr({ userFilter, userAttr }: Pick<Effective, 'userFilter' | 'userAttr'>): boolean {
  return /\{\{\s*\.UserAttr\s*\}\}/.test(userFilter) || new RegExp(`\\(${userAttr}[:=]`, 'i').test(userFilter)
}
