import { derived } from '../../../lib/derived.ts'
import { invalid, unavailable } from '../../../lib/errors.ts'
import { isTurning } from '../../account/account.ts'
import { isDn, normalizeDn } from '../../directory/dn.ts'
import { type Change, put, remove, type Store } from '../../storage/store.ts'
import { withDomain } from './directory-access.ts'
import { accountKind, type EngineConfig, type StaticRoleRecord, staticRoleKind } from './records.ts'

/**
 * One account, one role. An account is known by several identities: the name it was given by, the DN it was given by, and
 * the DN where the directory found it; the last two also beside each server's address, for another mount may manage the same directory.
 * Each that a role holds stands in the account index, compared without regard to case and to how a DN is spelled. The mount's own bind
 * account can be nobody's.
 */

/** The identities that follow from how a role was asked for. */
export function givenIdentities(
  config: EngineConfig,
  { username, dn }: Pick<StaticRoleRecord, 'username' | 'dn'>,
): string[] {
  return [...new Set([nameIdentity(config, username), ...(dn === undefined ? [] : entryIdentities(config, dn))])]
}

/** The identities of an entry of the mount's directory. Throws `invalid` for what is not a DN. */
export function entryIdentities(config: EngineConfig, dn: string): string[] {
  const identity = dnIdentity(dn)
  return [identity, ...addressesOf(config).map((address) => `${AT}${address}/${identity}`)]
}

const addressesOf = derived(({ urls }: EngineConfig) => [...new Set(urls.map(addressOf))])

const AT = 'at:'
const USUAL_PORTS: Readonly<Record<string, string>> = { 'ldap:': '389', 'ldaps:': '636' }

/** The usual ports of one host are one directory. */
function addressOf(url: string): string {
  const { protocol, hostname, port } = new URL(url)
  return port === '' || port === USUAL_PORTS[protocol] ? hostname : `${hostname}:${port}`
}

/** Where an identity stands in the account index: what holds for one directory is not the mount's alone. */
function accountKey(mountId: string, identity: string): string {
  return identity.startsWith(AT) ? identity : `${mountId}/${identity}`
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
  const { own, ownLocal } = bindIdentities(config)
  return identities.some(
    (identity) =>
      own.has(identity) || (identity.startsWith('name:') && localName(identity.slice('name:'.length)) === ownLocal),
  )
}

const bindIdentities = derived((config: EngineConfig) => {
  const { bindDN, upnDomain } = config
  const own = new Set([nameIdentity(config, bindDN)])
  if (upnDomain && !bindDN.includes('=')) own.add(`name:${withDomain(bindDN, upnDomain).toLowerCase()}`)
  return { own, ownLocal: isDn(bindDN) ? undefined : localName(bindDN) }
})

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
 * one of them, `unavailable` while a deleted role's last rotation may still change the account. The commit fails with `VersionConflict` when
 * somebody else took one meanwhile: ask again then.
 */
export async function claimIdentities(
  store: Store,
  mountId: string,
  identities: readonly string[],
  holder: Holder,
  now: Date,
): Promise<Change[]> {
  const changes: Change[] = []
  for (const identity of identities) {
    const key = accountKey(mountId, identity)
    const entry = await store.read(accountKind, key)
    if (entry?.value.id === holder.id) continue
    if (entry) {
      const { mount = mountId, role, id, freeAt } = entry.value
      if ((await store.read(staticRoleKind, `${mount}/${role}`))?.value.id === id)
        throw invalid(
          `the account is already managed by another role of ${mount === mountId ? 'this' : 'another'} mount`,
          { reason: 'name-conflict' },
        )
      if (freeAt && freeAt > now)
        throw unavailable(
          `a deleted role's rotation of this account may not have ended yet; try again after ${freeAt.toISOString()}`,
        )
    }
    const claimed = identity.startsWith(AT) ? { ...holder, mount: mountId } : { ...holder }
    changes.push(put(accountKind, key, claimed, { expected: entry?.version ?? 0 }))
  }
  return changes
}

/** The changes that give back all that a role holds, once a password that may still be on its way must have arrived. */
export function releaseAccount(
  mountId: string,
  roleKey: string,
  { id, accounts, account }: StaticRoleRecord,
  now: Date,
): Change[] {
  const freeAt = isTurning(account) ? account.pending?.heldUntil : undefined
  const holder = { role: roleKey.slice(mountId.length + 1), id }
  return releaseIdentities(mountId, accounts, freeAt && freeAt > now ? { holder, freeAt } : undefined)
}

/** The changes that give identities back: at once, or at an instant until which `holder` keeps them beyond its end. */
export function releaseIdentities(
  mountId: string,
  identities: readonly string[],
  until?: { readonly holder: Holder; readonly freeAt: Date },
): Change[] {
  return identities.map((identity) => {
    const key = accountKey(mountId, identity)
    if (!until) return remove(accountKind, key, { expected: 'any' })
    return put(accountKind, key, { ...until.holder, mount: mountId, freeAt: until.freeAt }, { expected: 'any' })
  })
}
