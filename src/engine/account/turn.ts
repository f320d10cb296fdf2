import type { AccountHost, LoadedAccount } from './host.ts'

/**
 * Why an account's password is turned. `create`: its record is new, and a definite refusal takes the record back; `due`: its time has
 * come; `manual`: somebody asked; `recover`: only what an earlier turn left open is resolved.
 */
export type TurnReason = 'create' | 'due' | 'manual' | 'recover'

export interface AccountTurner extends AsyncDisposable {
  /**
   * Turns the password of an account and resolves with the record as it is afterwards. Turns of one account asked for at once share one
   * rotation. Throws `invalid` (the directory refused), `unavailable` (no answer; retries go on in the background) or `not-found` (no
   * such record any more). An aborted `signal` ends the waiting, not the turn.
   */
  turn(host: AccountHost, why: TurnReason, signal: AbortSignal): Promise<LoadedAccount>
}
