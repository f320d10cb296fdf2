import { type AccountState, UNKNOWN_OUTCOME } from './account.ts'
import type { TurnReason } from './turn-step.ts'

/** What a turn does next. */
export type Decision =
  /** Nothing: what was wanted has happened, or there is nothing left to resolve. */
  | { readonly do: 'finish' }
  /** Somebody else may still be at work, or it is too early to ask the directory again; look again then. */
  | { readonly do: 'wait'; readonly until: Date; readonly why: 'held' | 'too-early' }
  /** A password may be set that nobody confirmed: find out by bind; if it is not, send the same one again. */
  | { readonly do: 'resolve' }
  /** Make a new password and send it. */
  | { readonly do: 'begin' }

export interface DecideContext {
  readonly now: Date
  /** This process, as `pending.holder` names it. */
  readonly holder: string
  /** No other process can have the store open: whoever else wrote a pending password is dead. */
  readonly isExclusive: boolean
  /** `credentialVersion` when the turn was asked for. */
  readonly askedAtVersion: number
}

/** Pure: what to do about an account as it was just read. The caller holds the account's lock in this process. */
export function decide(account: AccountState, why: TurnReason, context: DecideContext): Decision {
  const { now, holder, isExclusive, askedAtVersion } = context
  const { pending } = account
  // A new password was confirmed since this turn was asked for: that is the result, whatever is in the air by now.
  if (why !== 'recover' && account.credentialVersion > askedAtVersion) return { do: 'finish' }
  if (pending?.maybeSent) {
    const mayBeAtWork = pending.holder !== holder && !isExclusive && pending.heldUntil > now
    if (mayBeAtWork) return { do: 'wait', until: pending.heldUntil, why: 'held' }
    // Each try binds as the account: whoever asks by hand makes it no more often than the back-off, for the directory may count such binds.
    const { failure } = account
    if (why === 'manual' && failure?.class === UNKNOWN_OUTCOME && failure.retryAt > now)
      return { do: 'wait', until: failure.retryAt, why: 'too-early' }
    return { do: 'resolve' }
  }
  return { do: why === 'recover' ? 'finish' : 'begin' }
}
