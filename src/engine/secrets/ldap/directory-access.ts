import { derived } from '../../../lib/derived.ts'
import type { LoadedAccount } from '../../account/host.ts'
import { connectionSettings, type MountConnection } from '../../connection/connection.ts'
import type { BindIdentity, DirectorySettings } from '../../directory/directory.ts'
import type { EngineConfig, StaticRoleRecord } from './records.ts'

/** How to reach the directory of a mount. When both timeouts are set the smaller one serves for both (SPECIFICATION 2.3). */
export const directorySettings = derived((config: EngineConfig): DirectorySettings => {
  const { connectionTimeout: connection = 0, requestTimeout: request = 0 } = config
  const smaller = connection > 0 && request > 0 ? Math.min(connection, request) : 0
  return {
    ...connectionSettings({ ...config, ...(smaller > 0 && { connectionTimeout: smaller, requestTimeout: smaller }) }),
    // Both only matter to searches for people; the engine's own searches look for exactly one entry.
    dereferenceAliases: 'never',
    maxPageSize: 0,
  }
})

/** As whom the mount works in its directory. */
export const bindIdentity = derived(
  ({ bindDN, bindPassword, upnDomain }: EngineConfig): BindIdentity => ({
    name: upnDomain && !bindDN.includes('=') ? withDomain(bindDN, upnDomain) : bindDN,
    password: bindPassword,
  }),
)

export function mountConnection(config: EngineConfig): MountConnection {
  return { settings: directorySettings(config), identity: bindIdentity(config) }
}

/** Where the account of a role is. */
export function accountTarget(
  config: EngineConfig,
  { dn, username }: Pick<StaticRoleRecord, 'dn' | 'username'>,
): LoadedAccount['target'] {
  if (dn !== undefined) return { dn }
  const isUpn = config.userAttr.toLowerCase() === 'userprincipalname'
  return {
    userDn: config.userDN ?? '',
    userAttr: config.userAttr,
    username: isUpn && config.upnDomain ? withDomain(username, config.upnDomain) : username,
  }
}

export function withDomain(name: string, upnDomain: string): string {
  return name.includes('@') ? name : `${name}@${upnDomain}`
}
