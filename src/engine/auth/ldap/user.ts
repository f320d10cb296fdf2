import { invalid } from '../../../lib/errors.ts'
import { CONNECTION_DEFAULTS } from '../../../schema/ldap-connection.ts'
import type { Admission, BindIdentity, DirectoryDoor, Entry, Session } from '../../directory/directory.ts'
import { escapeDnValue } from '../../directory/dn.ts'
import { DirectoryError, isDirectoryError } from '../../directory/errors.ts'
import { equals, type Filter, or, parseFilter } from '../../directory/filter.ts'
import { STATUS_ATTRIBUTES } from './disabled.ts'
import { ANONYMOUS, type Effective, findsByUserAttr } from './effective.ts'
import { renderFilter } from './filter-template.ts'
import { findGroups } from './groups.ts'

/** Who logs in, as the directory knows her. */
export interface User {
  readonly dn: string
  readonly alias: string
  /** How the directory itself spells the name she was found by, where that can be told. */
  readonly names: readonly string[]
  /** Names of her groups in the directory, each once, in their original case. */
  readonly groups: readonly string[]
}

/** How to bind as a user, and her entry where finding her took a search. */
export interface Found {
  readonly bindName: string
  readonly entry?: Entry
}

/** What a login needs of the directory. A refused password of the service is not presented many times over: `admission` is the guard's. */
export interface LookUp {
  readonly door: DirectoryDoor
  readonly admission: Admission
  readonly signal: AbortSignal
  warn(text: string): void
}

/** Derives the name to bind with; `undefined` when a search finds none or several. */
export async function findUser(
  { door, admission, signal }: LookUp,
  now: Effective,
  username: string,
): Promise<Found | undefined> {
  if (now.service || now.discoverDN) {
    const searcher = now.service ?? { ...ANONYMOUS, name: now.bindDN }
    const search = async (session: Session) => {
      const entry = await searchOne(session, now, userFilter(now, username))
      return entry && { bindName: entry.dn, entry }
    }
    const found = () => door.withSession(now.settings, searcher, signal, search, { isLogin: true, admission })
    return now.service ? found() : asNobody(found)
  }
  if (now.upnDomain !== '') return { bindName: `${escapeDnValue(username)}@${now.upnDomain}` }
  return { bindName: `${now.userAttr}=${escapeDnValue(username)},${now.userDN}` }
}

/**
 * Reads the user's entry and groups: with the service's identity, or bound as the user herself (`asUser`, a connection of its own, whose
 * bind proves the password), or anonymously where there is neither.
 */
export async function describeUser(
  { door, admission, signal, warn }: LookUp,
  now: Effective,
  username: string,
  found: Found,
  asUser?: BindIdentity,
): Promise<User> {
  const identity = asUser ?? now.service ?? ANONYMOUS
  const read = async (session: Session) => {
    const entry = await entryOf(session, now, username, found)
    const who = { dn: entry?.dn ?? found.bindName, username, entry }
    const groups = now.anonymousGroupSearch ? undefined : await findGroups(session, now, who, warn)
    return { who, groups, alias: aliasOf(now, username, entry), names: spelledNames(now, entry) }
  }
  const { who, groups, alias, names } = await door.withSession(now.settings, identity, signal, read, {
    isLogin: true,
    ...(asUser ? { fresh: true } : { admission }),
  })
  return {
    dn: who.dn,
    alias,
    names,
    groups:
      groups ??
      (await asNobody(() =>
        door.withSession(now.settings, ANONYMOUS, signal, (nobody) => findGroups(nobody, now, who, warn), {
          isLogin: true,
        }),
      )),
  }
}

/** A directory that will not have nobody says nothing about the service's or the user's own password. */
async function asNobody<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    if (!isDirectoryError(cause) || cause.class !== 'bind-refused') throw cause
    throw new DirectoryError('refused', `${cause.message}: anonymous`, { cause })
  }
}

async function entryOf(session: Session, now: Effective, username: string, found: Found): Promise<Entry | undefined> {
  if (now.upnDomain !== '') {
    const entry = await searchOne(session, now, principalFilter(now, username))
    if (!entry) throw invalid('ldap operation failed: no single entry of this user was found')
    return entry
  }
  if (found.entry) return found.entry
  if (now.usernameAsAlias && !now.useTokenGroups) return undefined
  const [entry] = await session.search({
    base: found.bindName,
    scope: 'base',
    filter: parseFilter('(objectClass=*)'),
    attributes: attributesOf(now),
  })
  return entry
}

async function searchOne(session: Session, now: Effective, filter: Filter): Promise<Entry | undefined> {
  const entries = await session.search({
    base: now.userDN,
    scope: 'sub',
    filter,
    attributes: attributesOf(now),
    sizeLimit: 2,
  })
  return entries.length === 1 ? entries[0] : undefined
}

// objectSid stands on every Active Directory entry and on no other: it tells whether tokenGroups is worth asking for.
function attributesOf(now: Effective): string[] {
  return [now.userAttr, ...STATUS_ATTRIBUTES, ...(now.useTokenGroups ? ['objectSid'] : [])]
}

function principalFilter(now: Effective, username: string): Filter {
  const principal = equals('userPrincipalName', `${username}@${now.upnDomain}`)
  return now.enableSamaccountnameLogin ? or(principal, equals('sAMAccountName', username)) : principal
}

function userFilter(now: Effective, username: string): Filter {
  if (now.upnDomain !== '' && now.userFilter === CONNECTION_DEFAULTS.userFilter) return principalFilter(now, username)
  const values =
    now.upnDomain === ''
      ? { UserAttr: now.userAttr, Username: username }
      : { UserAttr: 'userPrincipalName', Username: `${username}@${now.upnDomain}` }
  return parseFilter(renderFilter(now.userFilter, values))
}

/** A name finds the entry by one attribute of one value: then that value is the name, whatever the directory takes for the same. */
function spelledNames(now: Effective, entry: Entry | undefined): readonly string[] {
  const searched = now.service !== undefined || now.discoverDN
  if (now.upnDomain !== '' || (searched && !findsByUserAttr(now))) return []
  const values = entry?.all(now.userAttr) ?? []
  return values.length === 1 ? values : []
}

/** The name under which the user is known for ever on this mount. */
function aliasOf(now: Effective, username: string, entry: Entry | undefined): string {
  if (now.usernameAsAlias) return username
  const values = entry?.all(now.userAttr) ?? []
  const [value] = values
  if (values.length > 1) throw invalid(`ldap operation failed: the user has several values of ${now.userAttr}`)
  if (value === undefined) throw invalid(`ldap operation failed: the user's entry has no readable ${now.userAttr}`)
  return value
}
