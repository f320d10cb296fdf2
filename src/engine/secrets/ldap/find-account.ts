import type { DirectoryGuard } from '../../account/guard.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { isDirectoryError } from '../../directory/errors.ts'
import { equals, parseFilter } from '../../directory/filter.ts'
import { accountTarget, bindIdentity, directorySettings } from './directory-access.ts'
import type { EngineConfig, StaticRoleRecord } from './records.ts'

/**
 * DN of the one entry that a role means, as the directory gives it; `undefined` where there is none or several. Throws `unavailable`
 * when the directory cannot tell.
 */
export async function findAccount(
  deps: { door: DirectoryDoor; guard: DirectoryGuard },
  mountId: string,
  config: EngineConfig,
  role: Pick<StaticRoleRecord, 'dn' | 'username'>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const target = accountTarget(config, role)
  const search =
    'dn' in target
      ? { base: target.dn, scope: 'base' as const, filter: parseFilter('(objectClass=*)') }
      : { base: target.userDn, scope: 'sub' as const, filter: equals(target.userAttr, target.username) }
  const { guard, door } = deps
  try {
    const entries = await guard.run(mountId, () =>
      door.withSession(directorySettings(config), bindIdentity(config), signal, (session) =>
        session.search({ ...search, attributes: ['1.1'], sizeLimit: 2 }),
      ),
    )
    return entries.length === 1 ? entries[0]?.dn : undefined
  } catch (error) {
    if (isDirectoryError(error) && error.class === 'absent') return undefined
    throw error
  }
}
