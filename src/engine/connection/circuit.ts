import type { Values } from '../../schema/answer.ts'
import type { DirectoryGuard } from '../account/guard.ts'
import type { Caller } from '../backend.ts'

/** Whether the directory of a mount is asked at present, for the controller, who tells its resource. */
export async function circuitValues(
  guard: Pick<DirectoryGuard, 'state'>,
  mountId: string,
  caller: Pick<Caller, 'isController'>,
): Promise<Values> {
  if (!caller.isController) return {}
  const state = await guard.state(mountId)
  return { circuit: state.isOpen ? { state: 'closed' } : { state: 'open', why: state.why, since: state.since } }
}
