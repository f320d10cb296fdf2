import { AppError } from '../../lib/errors.ts'
import type { Worker } from '../../lib/worker.ts'
import { clearRestoreMark, type RestoreMark, readRestoreMark } from '../storage/restore-mark.ts'
import type { Store } from '../storage/store.ts'
import { proveRestored, type RestoredDeps } from './restored.ts'
import type { RotationHosts } from './rotation-worker.ts'

const PARALLEL = 8
const PAGE = 64
const AGAIN_MS = 15_000
/** A mark appears only while no server runs; it is looked for once in a while all the same. */
const IDLE_MS = 3_600_000

/**
 * After a restore, proves every account once, mount by mount, and then clears the mark: from then on nothing is asked any more. Accounts
 * that cannot be proven yet (the directory is down, a drifted one could not be turned) are tried again until none is left. Record keys
 * begin with the mount's id and a slash.
 */
export function createRestoredWorker<T>(
  deps: RestoredDeps & { readonly store: Store; readonly hosts: RotationHosts<T> },
): Worker {
  const { store, hosts, guard, log } = deps

  /** Whether all accounts of a mount are proven. */
  async function proveMount(mountId: string, mark: RestoreMark, signal: AbortSignal): Promise<boolean> {
    let isComplete = true
    const proveOne = async (key: string) => {
      try {
        await proveRestored(deps, hosts.hostFor(mountId, key), mark, signal)
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof AppError)) throw error
        // A record that was deleted meanwhile needs no proof.
        if (error.kind === 'not-found') return
        isComplete = false
        log.debug({ record: key, reason: error.message }, 'a restored password cannot be proven yet')
      }
    }
    for (let after: string | undefined; ; ) {
      const options = { limit: PAGE, ...(after !== undefined && { after }) }
      const keys = await store.keys(hosts.recordKind, `${mountId}/`, options)
      for (let i = 0; i < keys.length; i += PARALLEL) {
        // A closed guard would refuse all the others as well.
        const state = await guard.state(mountId)
        if (!state.isOpen && state.probeAt > deps.clock.now()) return false
        await Promise.all(keys.slice(i, i + PARALLEL).map(proveOne))
      }
      if (keys.length < PAGE) return isComplete
      after = keys.at(-1)
    }
  }

  return {
    name: 'restored-accounts',
    async tick(signal) {
      const mark = await readRestoreMark(store)
      if (!mark) return IDLE_MS
      const mounts = await hosts.mounts()
      const complete = await Promise.all(mounts.map(({ id }) => proveMount(id, mark, signal)))
      if (complete.includes(false)) return AGAIN_MS
      await store.commit([clearRestoreMark(mark)])
      log.info('every account has been proven since the store was restored')
      return IDLE_MS
    },
  }
}
