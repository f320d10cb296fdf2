import { AppError } from '../../../lib/errors.ts'
import { findEntry } from '../../account/entry.ts'
import type { DirectoryGuard } from '../../account/guard.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { VersionConflict } from '../../storage/driver.ts'
import type { Store, Stored } from '../../storage/store.ts'
import { accountTarget, bindIdentity, directorySettings } from './directory-access.ts'
import { configKind, type EngineConfig, type StaticRoleRecord } from './records.ts'

/**
 * DN of the one entry that a role means, as the directory gives it; `undefined` where there is none, or several, or the directory does
 * not show it. Throws `unavailable` when the directory cannot tell, `VersionConflict` when the configuration is not this one any more.
 */
export async function findAccount(
  { store, door, guard }: { store: Store; door: DirectoryDoor; guard: DirectoryGuard },
  { key: mountId, value: config, version }: Stored<EngineConfig>,
  role: Pick<StaticRoleRecord, 'dn' | 'username'>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const target = accountTarget(config, role)
  try {
    return await guard.run(mountId, async (admission) => {
      // Let in for the configuration of now, it must not bind by an older one.
      if ((await store.readUnless(configKind, mountId, version)) !== 'unchanged') throw new VersionConflict(mountId)
      return door.withSession(
        directorySettings(config),
        bindIdentity(config),
        signal,
        async (session) => (await findEntry(session, target)).dn,
        { admission },
      )
    })
  } catch (error) {
    if (error instanceof AppError && error.kind === 'invalid') return undefined
    throw error
  }
}
