import * as z from 'zod'
import type { Due } from '../storage/driver.ts'
import { instantCodec, secretCodec } from '../storage/store.ts'

/**
 * The credential of one directory account, as a role's record holds it: the password known to be right (`confirmed`) and, while it is
 * being turned, the one that may be right (`pending`).
 *
 * Order of a turn: write `pending` durably → search and modify the directory → write `confirmed` (promote) → publish, the last two in
 * one commit. Invariants: a password is served only from `confirmed`; a pending password is dropped only after the directory
 * definitely refused it; who finds a `pending` that may have been sent proves by bind whether it is set and, if not, sends the same one
 * again: whatever an earlier holder still has on its way then changes nothing.
 */
export const accountCodec = z.object({
  /** DN of the entry, as the directory gave it last. */
  dn: z.string().exactOptional(),
  /** Number of confirmed passwords so far; 0 while none is known. */
  credentialVersion: z.int(),
  confirmed: z
    .object({
      password: secretCodec,
      since: instantCodec,
      /** Version of the record when it was confirmed: that of its `pending`, or a later one. */
      basedOn: z.int().exactOptional(),
    })
    .exactOptional(),
  /** The password before `confirmed`. */
  previous: secretCodec.exactOptional(),
  pending: z
    .object({
      password: secretCodec,
      generatedAt: instantCodec,
      /** The server that may have been told, to ask it first. */
      server: z.string().exactOptional(),
      /** False once it is certain that no directory was told: it may be dropped. */
      maybeSent: z.boolean(),
      /** Until when whoever wrote it may still be at work; nobody else touches the account before. */
      heldUntil: instantCodec,
      /** The process that wrote it: what itself left behind it need not wait for. */
      holder: z.string(),
    })
    .exactOptional(),
  /**
   * A password that was given up although nothing proves that it is not set (the directory refuses it now, and no known password
   * binds). Kept until the next promote.
   */
  abandoned: secretCodec.exactOptional(),
  /** The last failure since the last success. */
  failure: z
    .object({ class: z.string(), message: z.string(), count: z.int(), since: instantCodec, retryAt: instantCodec })
    .exactOptional(),
  /** The restore (`restoreId`) after which `confirmed` was last proven by a bind. */
  provenAfter: z.string().exactOptional(),
  /** Since when `confirmed` is known not to bind: somebody else changed it. Gone with the next promote. */
  driftedSince: instantCodec.exactOptional(),
})
export type AccountState = z.output<typeof accountCodec>

/** Failure class of a modify of which nobody knows whether it was done. */
export const UNKNOWN_OUTCOME = 'unknown-outcome'

export const NEW_ACCOUNT: AccountState = { credentialVersion: 0 }

/** Whether a password is in the air: the directory may have it and `confirmed` may be outdated. */
export function isTurning(account: AccountState): boolean {
  return account.pending?.maybeSent === true
}

/** Accounts whose next rotation is due at a time. */
export function rotationQueue(mountId: string): string {
  return `rotation/${mountId}`
}
/**
 * Accounts with a password in the air. A queue of its own, so that a server that starts finds exactly these, whatever their time, and
 * resolves them before anything else.
 */
export function turningQueue(mountId: string): string {
  return `turning/${mountId}`
}
/** The due time to store with an account's record. */
export function accountDue(mountId: string, account: AccountState, at: Date): Due {
  return { queue: isTurning(account) ? turningQueue(mountId) : rotationQueue(mountId), at }
}
