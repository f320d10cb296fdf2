import type { Clock } from '../../lib/clock.ts'
import { AppError, invalid, unavailable } from '../../lib/errors.ts'
import type { Random } from '../../lib/random.ts'
import type { Secret } from '../../lib/secret.ts'
import { VersionConflict } from '../storage/driver.ts'
import type { NewEvent } from '../storage/event.ts'
import { type AccountState, isTurning } from './account.ts'
import type { Contact, Outcome } from './contact.ts'
import type { AccountHost, LoadedAccount } from './host.ts'
import { abandoned, begun, dropped, type Failure, failed, held, promoted, toldTo, unsent } from './next-state.ts'
import type { TurnStep } from './turn-step.ts'

const CANDIDATES_AT_ONCE = 3

/**
 * The two acts of a turn. `begin`: write a new pending password, send it, promote it. `resolve`: take over a pending password that may
 * be set, prove it by bind, else send the same one again. Both end promoted, or with the failure on record and an error for who asked.
 *
 * A pending password is dropped only when it is certain that no directory has it: it was sent once, by this very turn, and definitely
 * refused; or it was refused at a bind and again when sent, every earlier holder's time is over, and the confirmed one binds.
 */
export class Rotation {
  readonly #contact: Contact
  readonly #clock: Clock
  readonly #random: Random
  readonly #holder: string
  readonly #reached: (step: TurnStep, host: AccountHost) => Promise<void>

  constructor(deps: {
    contact: Contact
    clock: Clock
    random: Random
    holder: string
    reached: (step: TurnStep, host: AccountHost) => Promise<void>
  }) {
    this.#contact = deps.contact
    this.#clock = deps.clock
    this.#random = deps.random
    this.#holder = deps.holder
    this.#reached = deps.reached
  }

  /** Makes a new password; nothing may be in the air. */
  async begin(host: AccountHost, start: LoadedAccount): Promise<LoadedAccount> {
    let loaded = start
    await this.#reached('decided', host)
    for (let candidate = 1; ; candidate++) {
      const password = this.#generate(loaded)
      if (password instanceof AppError)
        return this.#fail(host, loaded, dropped, { class: 'password-rules', message: password.message }, 'refused')
      const hold = this.#contact.newHold(loaded)
      loaded = await host.save(loaded, {
        account: begun(loaded.account, password, { ...hold, holder: this.#holder }),
        dueAt: hold.heldUntil,
        events: [],
      })
      await this.#reached('pending-written', host)
      const { outcome, ...after } = await this.#contact.send(host, loaded, hold, { proveFirst: false })
      loaded = after.loaded
      switch (outcome.is) {
        case 'set':
        case 'proven':
          return this.#promote(host, loaded, outcome.dn)
        case 'refused':
          // The refused one is overwritten by the next in the commit that claims the account for it.
          if (outcome.class === 'rejected' && candidate < CANDIDATES_AT_ONCE) break
          return this.#fail(host, loaded, dropped, outcome, 'refused')
        case 'unsent':
          return this.#fail(host, loaded, unsent, outcome, 'unavailable')
        case 'unknown':
          if (await this.#contact.binds(host.mountId, loaded, password, outcome)) {
            await this.#reached('pending-proven', host)
            return this.#promote(host, loaded, outcome.dn)
          }
          return this.#fail(host, loaded, (account) => toldTo(account, outcome.server), outcome, 'unknown')
        default:
          return outcome satisfies never
      }
    }
  }

  /** Finds out about a pending password that may be set; returns with it promoted, or certainly not set and gone. */
  async resolve(host: AccountHost, found: LoadedAccount): Promise<LoadedAccount> {
    await this.#reached('pending-found', host)
    const earlierUntil = found.account.pending?.heldUntil ?? this.#clock.now()
    const hold = this.#contact.newHold(found)
    const claimed = await host.save(found, {
      account: held(found.account, { heldUntil: hold.heldUntil, holder: this.#holder }),
      dueAt: hold.heldUntil,
      events: [],
    })
    await this.#reached('pending-taken-over', host)
    const { loaded, outcome, proofs } = await this.#contact.send(host, claimed, hold, { proveFirst: true })
    switch (outcome.is) {
      case 'proven':
      case 'set':
        return this.#promote(host, loaded, outcome.dn)
      case 'refused':
        return this.#refusedAgain(host, loaded, outcome, { earlierUntil, confirmedBinds: proofs.confirmedBinds })
      case 'unsent': {
        // Only what was sent earlier may still be on its way.
        const released = { heldUntil: earlierUntil, holder: this.#holder }
        // Each try is another failed bind as the account, which the directory may count.
        const isDirectoryWide = outcome.isDirectoryWide && !proofs.pendingFailed
        const failure = { ...outcome, isDirectoryWide }
        return this.#fail(host, loaded, (account) => held(account, released), failure, 'unavailable')
      }
      case 'unknown':
        return this.#fail(host, loaded, (account) => toldTo(account, outcome.server), outcome, 'unknown')
      default:
        return outcome satisfies never
    }
  }

  /** A pending password that may have been sent before is not set as far as a bind tells, and the directory refuses it now. */
  async #refusedAgain(
    host: AccountHost,
    loaded: LoadedAccount,
    outcome: Extract<Outcome, { is: 'refused' }>,
    { earlierUntil, confirmedBinds }: { earlierUntil: Date; confirmedBinds: boolean },
  ): Promise<LoadedAccount> {
    const isRejected = outcome.class === 'rejected'
    if (this.#clock.now() < earlierUntil)
      return this.#fail(host, loaded, keep, { ...outcome, notBefore: earlierUntil }, 'refused')
    // Of several servers another one may have been told, whose news have not come here yet: that the old one binds here proves nothing.
    const mayBeElsewhere = loaded.settings.urls.length > 1 && loaded.account.pending?.server !== outcome.server
    if (mayBeElsewhere && !isRejected) return this.#fail(host, loaded, keep, outcome, 'refused')
    if (confirmedBinds && !mayBeElsewhere) {
      if (!isRejected) return this.#fail(host, loaded, dropped, outcome, 'refused')
      return this.#settle(host, loaded, ({ account }) => ({
        account: dropped(account),
        dueAt: this.#clock.now(),
        events: [],
      }))
    }
    // A history of passwords may be why it is refused: then it was set once. A new one decides, this one stays on record until then.
    if (isRejected)
      return this.#settle(host, loaded, ({ account }) => ({
        account: abandoned(account),
        dueAt: this.#clock.now(),
        events: [],
      }))
    // Nobody was ever told that this role exists, and there is no entry that could have the password.
    const isNowhere = loaded.creating && outcome.class === 'absent'
    return this.#fail(host, loaded, isNowhere ? dropped : keep, outcome, 'refused')
  }

  async #promote(host: AccountHost, loaded: LoadedAccount, dn: string | undefined): Promise<LoadedAccount> {
    const promotedRecord = await this.#settle(host, loaded, (fresh) => {
      const { pending } = fresh.account
      if (!pending) throw new Error('a promote needs a pending password')
      const now = this.#clock.now()
      const at = { now, version: fresh.version, ...(dn !== undefined && { dn }) }
      const account = promoted(fresh.account, pending.password, at)
      const data = { credential_version: account.credentialVersion }
      const events: NewEvent[] = [{ type: 'rotate', ...fresh.subject, data }]
      return { account, dueAt: fresh.nextRotation(now), promoted: now, events }
    })
    await this.#reached('promoted', host)
    return promotedRecord
  }

  async #fail(
    host: AccountHost,
    loaded: LoadedAccount,
    change: (account: AccountState) => AccountState,
    failure: Pick<Failure, 'class' | 'message'> & Partial<Failure>,
    ended: 'refused' | 'unavailable' | 'unknown',
  ): Promise<never> {
    const left = change(loaded.account)
    // A password that was given up although it may be set is the only trace of what the account has now: that record stays and tries on.
    const isTraceNeeded = left.abandoned !== undefined && failure.class !== 'absent'
    if (loaded.creating && !isTurning(left) && !isTraceNeeded) {
      await host.discard(loaded)
      await this.#reached('discarded', host)
      const options = { reason: failure.class }
      throw ended === 'refused'
        ? invalid(`${failure.message}; nothing was created`, options)
        : unavailable(`${failure.message}; nothing was created`, options)
    }
    const what: Failure = { isDirectoryWide: false, ...failure }
    await this.#settle(host, loaded, (fresh) => {
      const next = failed(change(fresh.account), what, this.#clock.now(), this.#random)
      const event: NewEvent = { type: 'rotate-fail', ...fresh.subject, data: { error_class: what.class } }
      return { account: next.account, dueAt: next.retryAt, events: next.isNews ? [event] : [] }
    })
    await this.#reached('failure-written', host)
    throw explained(loaded, what, ended)
  }

  /** Saves what was found out, also when somebody changed another part of the record meanwhile. */
  async #settle(
    host: AccountHost,
    start: LoadedAccount,
    next: (fresh: LoadedAccount) => Parameters<AccountHost['save']>[1],
  ): Promise<LoadedAccount> {
    for (let loaded = start; ; ) {
      try {
        return await host.save(loaded, next(loaded))
      } catch (error) {
        if (!(error instanceof VersionConflict)) throw error
        const fresh = await host.load()
        if (!fresh || !isSameWork(fresh.account, start.account)) throw error
        loaded = fresh
      }
    }
  }

  #generate(loaded: LoadedAccount): Secret | AppError {
    try {
      return loaded.generate()
    } catch (error) {
      if (error instanceof AppError) return error
      throw error
    }
  }
}

const keep = (account: AccountState): AccountState => account

/** Whether the pending password of a record is still the one, and in the same hands. */
function isSameWork(a: AccountState, b: AccountState): boolean {
  if (a.credentialVersion !== b.credentialVersion) return false
  if (!a.pending || !b.pending) return a.pending === b.pending
  return a.pending.holder === b.pending.holder && a.pending.password.equals(b.pending.password)
}

function explained(loaded: LoadedAccount, failure: Failure, ended: 'refused' | 'unavailable' | 'unknown'): AppError {
  const what = loaded.creating ? 'the first rotation' : 'the rotation'
  const rest = 'retries go on in the background; repeating the request is safe'
  const reason = failure.class
  switch (ended) {
    case 'refused':
      return invalid(`${what} failed: ${failure.message}; ${rest}`, { reason })
    case 'unavailable':
      return unavailable(`${what} failed: ${failure.message}; ${rest}`, { reason })
    case 'unknown':
      return unavailable(`the outcome of ${what} is not known yet and is being resolved: ${failure.message}; ${rest}`, {
        reason,
      })
    default:
      return ended satisfies never
  }
}
