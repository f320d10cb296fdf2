import { invalid } from '../../../lib/errors.ts'
import { isDn, normalizeDn } from '../../directory/dn.ts'
import { type Change, put, type Store } from '../../storage/store.ts'
import { withDomain } from './directory-access.ts'
import { accountKind, type EngineConfig, type StaticRoleRecord, staticRoleKind } from './records.ts'

/**
 * One account, one role (CONTRACT 8.4). An account is known by several identities: the name it was given by, the DN it was given by, and
 * the DN where the directory found it. Each that a role holds stands in the account index, compared without regard to case and to how
 * a DN is spelled. The mount's own bind account can be nobody's.
 */

/** The identities that follow from how a role was asked for. */
export function givenIdentities(
  config: EngineConfig,
  { username, dn }: Pick<StaticRoleRecord, 'username' | 'dn'>,
): string[] {
  const identities = [nameIdentity(config, username)]
  if (dn !== undefined) identities.push(dnIdentity(dn))
  return [...new Set(identities)]
}

function nameIdentity({ userAttr, upnDomain }: EngineConfig, username: string): string {
  if (username.includes('=') && isDn(username)) return dnIdentity(username)
  const isUpn = userAttr.toLowerCase() === 'userprincipalname' && Boolean(upnDomain)
  return `name:${(isUpn ? withDomain(username, upnDomain ?? '') : username).trim().toLowerCase()}`
}

/** Throws `invalid` for what is not a DN. */
export function dnIdentity(dn: string): string {
  const refused = 'dn is not a distinguished name'
  if (dn.trim() === '') throw invalid(refused)
  try {
    return `dn:${normalizeDn(dn)}`
  } catch (cause) {
    throw invalid(refused, { cause })
  }
}

/** Whether one of the identities is the account that the mount itself binds as. */
export function isBindAccount(config: EngineConfig, identities: readonly string[]): boolean {
  const own = new Set([nameIdentity(config, config.bindDN)])
  if (config.upnDomain && !config.bindDN.includes('='))
    own.add(`name:${withDomain(config.bindDN, config.upnDomain).toLowerCase()}`)
  const ownLocal = isDn(config.bindDN) ? undefined : localName(config.bindDN)
  return identities.some(
    (identity) =>
      own.has(identity) || (identity.startsWith('name:') && localName(identity.slice('name:'.length)) === ownLocal),
  )
}

/** `svc` of `svc@corp.example` and of `CORP\svc`: Active Directory takes them all for one account. */
function localName(name: string): string {
  return name.replace(/^.*\\/, '').replace(/@.*$/, '').trim().toLowerCase()
}

export interface Holder {
  readonly role: string
  readonly id: string
}

/**
 * The changes that write an account's identities down for a role. Throws `invalid` with reason `name-conflict` when a living role holds
 * one of them. The commit fails with `VersionConflict` when somebody else took one meanwhile: ask again then.
 */
export async function claimIdentities(
  store: Store,
  mountId: string,
  identities: readonly string[],
  holder: Holder,
): Promise<Change[]> {
  const changes: Change[] = []
  for (const identity of identities) {
    const key = `${mountId}/${identity}`
    const entry = await store.read(accountKind, key)
    if (entry?.value.id === holder.id) continue
    if (entry) {
      const role = await store.read(staticRoleKind, `${mountId}/${entry.value.role}`)
      if (role?.value.id === entry.value.id)
        throw invalid('the account is already managed by another role of this mount', { reason: 'name-conflict' })
    }
    changes.push(put(accountKind, key, { ...holder }, { expected: entry?.version ?? 0 }))
  }
  return changes
}
