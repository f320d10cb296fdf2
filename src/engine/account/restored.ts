import type { Clock } from '../../lib/clock.ts'
import { unavailable } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { DirectoryDoor } from '../directory/directory.ts'
import { VersionConflict } from '../storage/driver.ts'
import type { RestoreMark } from '../storage/restore-mark.ts'
import { type AccountState, isTurning } from './account.ts'
import { findEntry } from './entry.ts'
import type { DirectoryGuard } from './guard.ts'
import { type AccountHost, type LoadedAccount, requireUnchanged } from './host.ts'
import { type AccountTurner, requireRecord } from './turn.ts'

/**
 * After a restore the store may be older than the directory: no password from before is served until one bind has proven it. One that no
 * longer binds is marked drifted (event `drift`) and turned anew; from then on nothing is served until that has succeeded.
 */

/** Names a restore; what was proven after it carries this name. */
export function restoreId(mark: RestoreMark): string {
  return mark.at.toISOString()
}

/**
 * Whether the confirmed password may be served. `mark` is the store's last restore, if there was any. Versions tell what came after it: the clock
 * of the machine that made the backup may have been ahead.
 */
export function isProven(account: AccountState, mark: RestoreMark | undefined): boolean {
  if (account.driftedSince) return false
  if (!mark || !account.confirmed) return true
  return (account.confirmed.basedOn ?? 0) > mark.version || account.provenAfter === restoreId(mark)
}

export interface RestoredDeps {
  readonly door: DirectoryDoor
  readonly guard: DirectoryGuard
  readonly turner: AccountTurner
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Resolves with a record whose confirmed password is proven, at the cost of at most one bind per account and restore. Throws `unavailable`
 * while the directory cannot tell, or while a drifted password could not be turned yet.
 */
export async function proveRestored(
  deps: RestoredDeps,
  host: AccountHost,
  mark: RestoreMark | undefined,
  signal: AbortSignal,
): Promise<LoadedAccount> {
  for (;;) {
    const loaded = await requireRecord(host)
    const { account } = loaded
    if (isProven(account, mark)) return loaded
    // Whatever is in the air is settled first; a promote is a proof.
    if (isTurning(account)) {
      const after = await deps.turner.turn(host, 'recover', signal)
      if (after.account.credentialVersion > account.credentialVersion) return after
      continue
    }
    if (account.driftedSince) {
      // Nobody who reads makes it more often tried than its back-off says.
      if (account.failure && account.failure.retryAt > deps.clock.now())
        throw unavailable(
          `the password of this account was changed by somebody else and could not be rotated yet: ${account.failure.message}`,
          { reason: 'drifted' },
        )
      return deps.turner.turn(host, 'due', signal)
    }
    try {
      await prove(deps, host, loaded, mark, signal)
    } catch (error) {
      if (!(error instanceof VersionConflict)) throw error
    }
  }
}

/** One bind with the confirmed password; its result goes on record. */
async function prove(
  { door, guard, clock, log }: RestoredDeps,
  host: AccountHost,
  loaded: LoadedAccount,
  mark: RestoreMark | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { account, settings, identity, target } = loaded
  if (!account.confirmed || !mark) return
  const { password } = account.confirmed
  const { dn, binds } = await guard.run(host.mountId, async (admission) => {
    await requireUnchanged(host, loaded)
    return door.withSession(
      settings,
      identity,
      signal,
      async (session) => {
        const { dn } = await findEntry(session, target)
        return { dn, binds: await door.verify(settings, { name: dn, password }, signal, { server: session.server }) }
      },
      { admission },
    )
  })
  const now = clock.now()
  if (binds) {
    const dueAt = account.failure?.retryAt ?? loaded.nextRotation(account.confirmed.since)
    await host.save(loaded, { account: { ...account, dn, provenAfter: restoreId(mark) }, dueAt, events: [] })
    return
  }
  log.warn({ account: host.lockKey }, 'after a restore the password of an account no longer binds; it is rotated')
  const drifted = { ...account, dn, driftedSince: now }
  await host.save(loaded, { account: drifted, dueAt: now, events: [{ type: 'drift', ...loaded.subject }] })
}
