import { AppError, invalid, unavailable } from '../../lib/errors.ts'
import type { BindIdentity, DirectoryDoor } from '../directory/directory.ts'
import type { MountConnection } from './connection.ts'

/**
 * Proves by one bind that a directory takes a name and password before they replace others that may work. Nothing is asked where they stay
 * the same. Throws `invalid` with reason `bind-refused`, and `unavailable` with reason `unproven` where the directory cannot tell now.
 */
export async function proveBind(
  door: Pick<DirectoryDoor, 'verify'>,
  before: BindIdentity | undefined,
  { settings, identity }: MountConnection,
  signal: AbortSignal,
): Promise<void> {
  if (before?.name === identity.name && before.password.equals(identity.password)) return
  const kept = 'the configuration stays as it was'
  let isAccepted: boolean
  try {
    isAccepted = await door.verify(settings, identity, signal)
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    const options = { cause: error }
    if (error.kind === 'unavailable')
      throw unavailable(`the new bind cannot be proven, ${kept}: ${error.message}`, { ...options, reason: 'unproven' })
    throw invalid(`the directory refuses the new bind, ${kept}: ${error.message}`, {
      ...options,
      reason: 'bind-refused',
    })
  }
  if (!isAccepted)
    throw invalid(`the directory refuses the new binddn and bindpass, ${kept}`, { reason: 'bind-refused' })
}
