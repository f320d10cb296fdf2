import { backoffMs } from '../../lib/backoff.ts'
import type { Random } from '../../lib/random.ts'
import type { Secret } from '../../lib/secret.ts'
import type { AccountState } from './account.ts'

/** How an account's record changes at each step of a turn. All pure. */

type Pending = NonNullable<AccountState['pending']>

const RETRY = { firstMs: 10_000, limitMs: 3_600_000 }
// What concerns the whole directory is no fault of the account: it is tried again soon after the directory is back.
const RETRY_DIRECTORY = { firstMs: 10_000, limitMs: 60_000 }

/** A new password is about to be sent. */
export function begun(
  account: AccountState,
  password: Secret,
  hold: { now: Date; heldUntil: Date; holder: string },
): AccountState {
  const pending: Pending = {
    password,
    generatedAt: hold.now,
    maybeSent: true,
    heldUntil: hold.heldUntil,
    holder: hold.holder,
  }
  return { ...account, pending }
}

/** The same pending password is about to be sent (again) by this holder. */
export function held(account: AccountState, hold: { heldUntil: Date; holder: string }): AccountState {
  return account.pending ? { ...account, pending: { ...account.pending, ...hold } } : account
}

/** The directory has this password: it is the confirmed one from now on. */
export function promoted(
  account: AccountState,
  password: Secret,
  at: { now: Date; version: number; dn?: string },
): AccountState {
  const dn = at.dn ?? account.dn
  return {
    ...(dn !== undefined && { dn }),
    credentialVersion: account.credentialVersion + 1,
    confirmed: { password, since: at.now, basedOn: at.version },
    ...(account.confirmed && { previous: account.confirmed.password }),
  }
}

/** The pending password is certainly not set and never will be. */
export function dropped(account: AccountState): AccountState {
  const { pending: _, ...rest } = account
  return rest
}

/** The directory refuses the pending password now, but may have taken it earlier: kept aside, so that a new one can be tried. */
export function abandoned(account: AccountState): AccountState {
  const { pending, ...rest } = account
  return pending ? { ...rest, abandoned: pending.password } : account
}

/** Nobody was told the pending password. */
export function unsent(account: AccountState): AccountState {
  return account.pending ? { ...account, pending: { ...account.pending, maybeSent: false } } : account
}

/** A server may have been told the pending password. */
export function toldTo(account: AccountState, server: string | undefined): AccountState {
  return account.pending && server !== undefined ? { ...account, pending: { ...account.pending, server } } : account
}

export interface Failure {
  readonly class: string
  readonly message: string
  /** Not the account's fault but the directory's. */
  readonly isDirectoryWide: boolean
  /** Not before this instant. */
  readonly notBefore?: Date
}

/**
 * Records a failure. `isNews`: worth an event, once per class and back-off step. Somebody who asks again and again before the retry is due
 * makes neither the waiting longer nor the feed fuller.
 */
export function failed(
  account: AccountState,
  failure: Failure,
  now: Date,
  random: Random,
): { account: AccountState; isNews: boolean; retryAt: Date } {
  const before = account.failure
  if (before && before.class === failure.class && now < before.retryAt) {
    const retryAt = later(before.retryAt, failure.notBefore)
    return {
      account: { ...account, failure: { ...before, message: failure.message, retryAt } },
      isNews: false,
      retryAt,
    }
  }
  const count = (before?.count ?? 0) + 1
  const waitMs = backoffMs(count, failure.isDirectoryWide ? RETRY_DIRECTORY : RETRY, random)
  const retryAt = later(new Date(now.getTime() + waitMs), failure.notBefore)
  const recorded = { class: failure.class, message: failure.message, count, since: before?.since ?? now, retryAt }
  return { account: { ...account, failure: recorded }, isNews: true, retryAt }
}

function later(a: Date, b: Date | undefined): Date {
  return b && b > a ? b : a
}
