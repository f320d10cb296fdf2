import { AppError } from '../../../lib/errors.ts'
import { findEntry } from '../../account/entry.ts'
import type { DirectoryGuard } from '../../account/guard.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { accountTarget, bindIdentity, directorySettings } from './directory-access.ts'
import type { EngineConfig, StaticRoleRecord } from './records.ts'

/**
 * DN of the one entry that a role means, as the directory gives it; `undefined` where there is none, or several, or the directory does
 * not show it. Throws `unavailable` when the directory cannot tell.
 */
export async function findAccount(
  { door, guard }: { door: DirectoryDoor; guard: DirectoryGuard },
  mountId: string,
  config: EngineConfig,
  role: Pick<StaticRoleRecord, 'dn' | 'username'>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const target = accountTarget(config, role)
  try {
    return await guard.run(mountId, (admission) =>
      door.withSession(
        directorySettings(config),
        bindIdentity(config),
        signal,
        async (session) => (await findEntry(session, target)).dn,
        { admission },
      ),
    )
  } catch (error) {
    if (error instanceof AppError && error.kind === 'invalid') return undefined
    throw error
  }
}
