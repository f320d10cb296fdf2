import { invalid } from '../../lib/errors.ts'
import type { Entry, Session } from '../directory/directory.ts'
import { isDirectoryError } from '../directory/errors.ts'
import { equals, present } from '../directory/filter.ts'
import type { LoadedAccount } from './host.ts'

/**
 * The entry of an account (CONTRACT 8.2): the one at its DN, or the only one below `userDn` whose `userAttr` is `username`. Throws `invalid`
 * with the reason `absent` or `not-unique`.
 */
export async function findEntry(session: Session, target: LoadedAccount['target']): Promise<Entry> {
  if ('dn' in target) {
    const [entry] = await at(session, target.dn)
    if (!entry) throw invalid(`the directory has no entry "${target.dn}"`, { reason: 'absent' })
    return entry
  }
  const { userDn, userAttr, username } = target
  const entries = await session.search({
    base: userDn,
    scope: 'sub',
    filter: equals(userAttr, username),
    attributes: ['1.1'],
    sizeLimit: 2,
  })
  const [entry] = entries
  const where = `with ${userAttr} "${username}" below "${userDn}"`
  if (!entry) throw invalid(`the directory has no entry ${where}`, { reason: 'absent' })
  if (entries.length > 1) throw invalid(`the directory has more than one entry ${where}`, { reason: 'not-unique' })
  return entry
}

async function at(session: Session, dn: string): Promise<Entry[]> {
  try {
    return await session.search({ base: dn, scope: 'base', filter: present('objectClass'), attributes: ['1.1'] })
  } catch (error) {
    if (isDirectoryError(error) && error.class === 'absent') return []
    throw error
  }
}
