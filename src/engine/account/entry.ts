import { invalid } from '../../lib/errors.ts'
import type { Entry, Session } from '../directory/directory.ts'
import { isDirectoryError } from '../directory/errors.ts'
import { equals, present } from '../directory/filter.ts'
import type { LoadedAccount } from './host.ts'

/**
 * The entry of an account: the one at its DN, or the only one below `userDn` whose `userAttr` is `username`. Throws `invalid`
 * with the reason `absent` or `not-unique`.
 */
export async function findEntry(session: Session, target: LoadedAccount['target']): Promise<Entry> {
  if ('dn' in target) {
    const [entry] = await at(session, target.dn)
    if (!entry) throw invalid(`the directory has no entry "${target.dn}"`, { reason: 'absent' })
    return entry
  }
  const { userDn, userAttr, username } = target
  const entries = await some(
    session.search({
      base: userDn,
      scope: 'sub',
      filter: equals(userAttr, username),
      attributes: ['1.1'],
      sizeLimit: 2,
    }),
  )
  const where = `with ${userAttr} "${username}" below "${userDn}"`
  if (entries === 'too-many' || entries.length > 1)
    throw invalid(`the directory has more than one entry ${where}`, { reason: 'not-unique' })
  const [entry] = entries
  if (!entry) throw invalid(`the directory has no entry ${where}`, { reason: 'absent' })
  return entry
}

const SIZE_LIMIT_EXCEEDED = 4

async function some(search: Promise<Entry[]>): Promise<Entry[] | 'too-many'> {
  try {
    return await search
  } catch (error) {
    if (isDirectoryError(error) && error.resultCode === SIZE_LIMIT_EXCEEDED) return 'too-many'
    throw error
  }
}

async function at(session: Session, dn: string): Promise<Entry[]> {
  try {
    return await session.search({ base: dn, scope: 'base', filter: present('objectClass'), attributes: ['1.1'] })
  } catch (error) {
    if (isDirectoryError(error) && error.class === 'absent') return []
    throw error
  }
}
