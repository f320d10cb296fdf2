import { backoffMs } from '../../lib/backoff.ts'
import type { Random } from '../../lib/random.ts'
import type { Secret } from '../../lib/secret.ts'
import { type AccountState, isTurning, UNKNOWN_OUTCOME } from './account.ts'

/** How an account's record changes at each step of a turn. All pure. */

type Pending = NonNullable<AccountState['pending']>

const LIMIT_MS = 3_600_000
const RETRY = { firstMs: 10_000, limitMs: LIMIT_MS }
// The directory may have a password that is not served yet: that is found out as soon as it may be known.
const RETRY_UNKNOWN = { firstMs: 1_000, limitMs: LIMIT_MS }
// What concerns the whole directory is no fault of the account, and its guard says when it may be asked: its accounts are due when it is back.
const DIRECTORY_MS = 10_000
const DIRECTORY_UNKNOWN_MS = 1_000

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
 * Records a failure. `isNews`: worth an event, once per class and back-off step, and once for an outage of the directory. Somebody who asks
 * again and again before the retry is due makes neither the waiting longer nor the feed fuller.
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
  const { isDirectoryWide } = failure
  const count = isDirectoryWide ? (before?.count ?? 1) : (before?.count ?? 0) + 1
  const waitMs = waitAfter(account, failure, count, random)
  const retryAt = later(new Date(now.getTime() + waitMs), failure.notBefore)
  const recorded = { class: failure.class, message: failure.message, count, since: before?.since ?? now, retryAt }
  const isNews = !isDirectoryWide || before?.class !== failure.class
  return { account: { ...account, failure: recorded }, isNews, retryAt }
}

function waitAfter(account: AccountState, failure: Failure, count: number, random: Random): number {
  if (failure.isDirectoryWide) {
    const fixedMs = isTurning(account) ? DIRECTORY_UNKNOWN_MS : DIRECTORY_MS
    return backoffMs(1, { firstMs: fixedMs, limitMs: fixedMs }, random)
  }
  return backoffMs(count, failure.class === UNKNOWN_OUTCOME ? RETRY_UNKNOWN : RETRY, random)
}

function later(a: Date, b: Date | undefined): Date {
  return b && b > a ? b : a
}
