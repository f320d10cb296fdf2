import * as z from 'zod'
import { instantCodec, secretCodec } from '../storage/store.ts'

/**
 * The credential of one directory account, as a role's record holds it: the password known to be right (`confirmed`) and, while it is
 * being turned, the one that may be right (`pending`).
 *
 * Order of a turn: write `pending` durably → search and modify the directory → write `confirmed` (promote) → publish, the last two in
 * one commit. Invariants: a password is served only from `confirmed`; a pending password is dropped only after the directory
 * definitely refused it; who finds a `pending` it did not write itself proves by bind which password is right before it goes on.
 */
export const accountCodec = z.object({
  /** DN of the entry, as the directory gave it last. */
  dn: z.string().exactOptional(),
  /** Number of confirmed passwords so far; 0 while none is known. */
  credentialVersion: z.int(),
  confirmed: z.object({ password: secretCodec, since: instantCodec }).exactOptional(),
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
    })
    .exactOptional(),
  /** The last failure since the last success. */
  failure: z
    .object({ class: z.string(), message: z.string(), count: z.int(), since: instantCodec, retryAt: instantCodec })
    .exactOptional(),
})
export type AccountState = z.output<typeof accountCodec>

export const NEW_ACCOUNT: AccountState = { credentialVersion: 0 }
