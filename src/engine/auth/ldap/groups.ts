import type { Entry, Session } from '../../directory/directory.ts'
import { firstCn, parentSuffix } from '../../directory/dn.ts'
import { isDirectoryError } from '../../directory/errors.ts'
import { equals, or, parseFilter } from '../../directory/filter.ts'
import type { Effective } from './effective.ts'
import { renderFilter } from './filter-template.ts'

const SIDS_PER_SEARCH = 50

interface Who {
  readonly dn: string
  readonly username: string
  readonly entry: Entry | undefined
}

/**
 * Names of a user's directory groups: by tokenGroups where the directory publishes it, which covers nested groups, else by
 * the group filter. A login without groups succeeds, with a warning.
 */
export async function findGroups(
  session: Session,
  now: Effective,
  who: Who,
  warn: (text: string) => void,
): Promise<string[]> {
  if (now.useTokenGroups && who.entry?.first('objectSid') !== undefined) {
    const names = await byTokenGroups(session, who)
    if (names.length > 0) return names
  }
  const names = await byFilter(session, now, who, warn)
  if (names.length === 0 && now.groupDN !== '')
    warn(`no LDAP groups found in groupDN "${now.groupDN}"; only policies from locally-defined groups available`)
  return names
}

async function byFilter(session: Session, now: Effective, who: Who, warn: (text: string) => void): Promise<string[]> {
  if (now.groupDN === '') return []
  const filter = parseFilter(renderFilter(now.groupFilter, { UserDN: who.dn, Username: who.username }))
  let entries: Entry[]
  try {
    entries = await session.search({ base: now.groupDN, scope: 'sub', filter, attributes: [now.groupAttr] })
  } catch (error) {
    if (!isDirectoryError(error) || error.class !== 'absent') throw error
    warn(`groupDN "${now.groupDN}" does not exist in the directory`)
    return []
  }
  return unique(entries.flatMap((entry) => namesOf(entry, now.groupAttr)))
}

/** Each value of the attribute, a DN giving its first CN; an entry without the attribute is named by its own. */
function namesOf(entry: Entry, attribute: string): string[] {
  const values = entry.all(attribute)
  if (values.length === 0) return [firstCn(entry.dn) ?? entry.dn]
  return values.map((value) => firstCn(value) ?? value)
}

/** The user's transitive groups as Active Directory computes them (MS-ADTS 3.1.1.4.5.19), looked up by SID a few at a time. */
async function byTokenGroups(session: Session, who: Who): Promise<string[]> {
  const any = parseFilter('(objectClass=*)')
  const [user] = await session.search({ base: who.dn, scope: 'base', filter: any, attributes: ['tokenGroups'] })
  const sids = user?.attributes.get('tokengroups') ?? []
  const names: string[] = []
  for (let at = 0; at < sids.length; at += SIDS_PER_SEARCH) {
    const some = sids.slice(at, at + SIDS_PER_SEARCH).map((sid) => equals('objectSid', sid))
    const groups = await session.search({
      base: parentSuffix(who.dn),
      scope: 'sub',
      filter: or(...some),
      attributes: ['cn'],
    })
    names.push(...groups.flatMap((group) => namesOf(group, 'cn')))
  }
  return unique(names)
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names)]
}
