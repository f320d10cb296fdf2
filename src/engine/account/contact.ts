import type { Clock } from '../../lib/clock.ts'
import { AppError } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import type { Admission, DirectoryDoor, Session } from '../directory/directory.ts'
import { isDirectoryError } from '../directory/errors.ts'
import { passwordChanges } from '../directory/password.ts'
import { UNKNOWN_OUTCOME } from './account.ts'
import { findEntry } from './entry.ts'
import { type DirectoryGuard, GuardClosed } from './guard.ts'
import { type AccountHost, type LoadedAccount, requireUnchanged } from './host.ts'
import { held } from './next-state.ts'
import { failureClassOf, fateOf, troubleOf } from './outcome.ts'
import type { TurnStep } from './turn-step.ts'

/**
 * The part of a turn that talks to the directory: search, permit and modify on one session, and proofs by bind. Every failure comes back as
 * an `Outcome`; only what is no answer of the directory (a changed record, our bugs, a shutdown) is thrown.
 */
export type Outcome =
  /** The directory took the password. */
  | { readonly is: 'set'; readonly dn: string }
  /** The password was set already: it binds. */
  | { readonly is: 'proven'; readonly dn: string }
  /** The directory, or a rule of ours, definitely refused; this sending changed nothing. */
  | {
      readonly is: 'refused'
      readonly class: string
      readonly message: string
      readonly dn?: string
      readonly server?: string
    }
  /** Certainly nothing was sent. */
  | {
      readonly is: 'unsent'
      readonly class: string
      readonly message: string
      readonly isDirectoryWide: boolean
      readonly notBefore?: Date
    }
  /** The directory may have the password. */
  | {
      readonly is: 'unknown'
      readonly class: string
      readonly message: string
      readonly dn: string
      readonly server?: string
    }

/** What binds as the account have told before its password was sent again. */
export interface Proofs {
  readonly pendingFailed: boolean
  readonly confirmedBinds: boolean
}

/** This process's claim on an account, by both clocks: the wall's for others, the monotonic one for ourselves. */
export interface Hold {
  readonly now: Date
  readonly heldUntil: Date
  /** On the monotonic clock; before `heldUntil` by a margin for clocks that differ between servers. */
  readonly endsMs: number
}

const HOLD_MARGIN_MS = 10_000
/** What may pass between the check of a claim and the first octet of the modify. */
const SEND_MARGIN_MS = 2_000

export interface ContactDeps {
  readonly door: DirectoryDoor
  readonly guard: DirectoryGuard
  readonly clock: Clock
  readonly holder: string
  readonly signal: AbortSignal
  readonly reached: (step: TurnStep, host: AccountHost) => Promise<void>
}

export class Contact {
  readonly #deps: ContactDeps

  constructor(deps: ContactDeps) {
    this.#deps = deps
  }

  /** A claim from now, long enough for a search and a modify. */
  newHold({ settings }: LoadedAccount): Hold {
    const { clock } = this.#deps
    const workMs = 2 * settings.requestTimeoutMs + SEND_MARGIN_MS
    const startMs = clock.monotonicMs()
    const now = clock.now()
    return {
      now,
      heldUntil: new Date(now.getTime() + workMs + HOLD_MARGIN_MS),
      endsMs: startMs + workMs,
    }
  }

  /**
   * Sends the pending password of a record that this process has claimed; `proveFirst` asks by one bind whether it is set already, and if not,
   * by another whether the confirmed one is: a directory that counts failed binds forgets the first over the second. The record may have been
   * written again to hold it longer.
   */
  async send(
    host: AccountHost,
    start: LoadedAccount,
    hold: Hold,
    { proveFirst }: { proveFirst: boolean },
  ): Promise<{ loaded: LoadedAccount; outcome: Outcome; proofs: Proofs }> {
    const { guard, signal, reached } = this.#deps
    const { pending, confirmed } = start.account
    if (!pending) throw new Error('there is no pending password to send')
    let loaded = start
    let dn: string | undefined
    let server: string | undefined
    let isSent = false
    const proofs = { pendingFailed: false, confirmedBinds: false }
    const work = async (session: Session): Promise<Outcome> => {
      server = session.server
      dn = (await findEntry(session, loaded.target)).dn
      await reached('entry-found', host)
      if (proveFirst) {
        if (await this.#verify(loaded, dn, pending.password, server)) {
          await reached('pending-proven', host)
          return { is: 'proven', dn }
        }
        proofs.pendingFailed = true
        await reached('pending-not-set', host)
        if (confirmed) proofs.confirmedBinds = await this.#verify(loaded, dn, confirmed.password, server)
        if (proofs.confirmedBinds) await reached('confirmed-proven', host)
      }
      await loaded.permit(dn)
      loaded = await this.#holdLongEnough(host, loaded, hold)
      await reached('about-to-modify', host)
      const changes = passwordChanges(loaded.schema, pending.password, loaded.credentialType)
      isSent = true
      await session.replace(dn, changes)
      await reached('modified', host)
      return { is: 'set', dn }
    }
    try {
      const outcome = await guard.run(host.mountId, async (admission) => {
        // Let in for the configuration of now, it must not bind by an older one.
        await requireUnchanged(host, loaded)
        return this.#onServerTold(loaded, admission, work)
      })
      return { loaded, outcome, proofs }
    } catch (error) {
      if (!(error instanceof AppError) || signal.aborted) throw error
      return { loaded, outcome: outcomeOf(error, isSent, dn, server), proofs }
    }
  }

  /** Whether the account binds with this password. No answer counts as no. At most one bind. */
  async binds(
    mountId: string,
    loaded: LoadedAccount,
    password: Secret,
    where: { readonly dn?: string; readonly server?: string },
  ): Promise<boolean> {
    const dn = where.dn ?? knownDn(loaded)
    // A proof is no probe, and a server that does not answer one says nothing about the directory as a whole.
    if (dn === undefined || !(await this.#deps.guard.state(mountId)).isOpen) return false
    try {
      return await this.#verify(loaded, dn, password, where.server)
    } catch (error) {
      if (isDirectoryError(error)) return false
      throw error
    }
  }

  /** Works on the server that was told the pending password first; on any other when that one is not to be had. */
  async #onServerTold<T>(
    { settings, identity, account }: LoadedAccount,
    admission: Admission,
    work: (session: Session) => Promise<T>,
  ): Promise<T> {
    const { door, signal } = this.#deps
    const server = account.pending?.server
    let isBegun = false
    if (server !== undefined && settings.urls.length > 1 && settings.urls.includes(server)) {
      try {
        return await door.withSession(
          settings,
          identity,
          signal,
          (session) => {
            isBegun = true
            return work(session)
          },
          { server, admission },
        )
      } catch (error) {
        if (isBegun || !isDirectoryError(error) || error.class !== 'unavailable') throw error
      }
    }
    return door.withSession(settings, identity, signal, work, { admission })
  }

  #verify(loaded: LoadedAccount, dn: string, password: Secret, server: string | undefined): Promise<boolean> {
    const { door, signal } = this.#deps
    const identity = { name: dn, password }
    return door.verify(loaded.settings, identity, signal, server === undefined ? {} : { server })
  }

  /**
   * Right before a write to the directory: the record must still be the one that was claimed, for it may have been deleted meanwhile, and the
   * claim must outlive its time limit on the monotonic clock, which also ran while this process was frozen. Else it is renewed; who lost
   * it gets `VersionConflict`.
   */
  async #holdLongEnough(host: AccountHost, loaded: LoadedAccount, hold: Hold): Promise<LoadedAccount> {
    const { clock, holder } = this.#deps
    await requireUnchanged(host, loaded)
    for (let current = { loaded, hold }; ; ) {
      const leftMs = current.hold.endsMs - clock.monotonicMs()
      if (leftMs >= loaded.settings.requestTimeoutMs + SEND_MARGIN_MS) return current.loaded
      const renewed = this.newHold(current.loaded)
      const account = held(current.loaded.account, { heldUntil: renewed.heldUntil, holder })
      const saved = await host.save(current.loaded, { account, dueAt: renewed.heldUntil, events: [] })
      current = { loaded: saved, hold: renewed }
    }
  }
}

function outcomeOf(error: AppError, isSent: boolean, dn: string | undefined, server: string | undefined): Outcome {
  const { message } = error
  const where = { ...(server !== undefined && { server }) }
  if (error instanceof GuardClosed)
    return { is: 'unsent', class: error.why, message, isDirectoryWide: true, notBefore: error.probeAt }
  const failureClass = failureClassOf(error)
  if (isSent) {
    const fate = fateOf(error)
    if (fate === 'unknown') return { is: 'unknown', class: UNKNOWN_OUTCOME, message, dn: dn ?? '', ...where }
    if (fate === 'refused')
      return { is: 'refused', class: failureClass, message, ...(dn !== undefined && { dn }), ...where }
  } else if (error.kind === 'invalid' || error.kind === 'denied') {
    // The entry was not found, is not unique or may not be managed.
    return { is: 'refused', class: failureClass, message, ...(dn !== undefined && { dn }), ...where }
  }
  // Once connected, no answer is the trouble of one entry, as for the guard.
  const isOfEntry = server !== undefined && isDirectoryError(error) && error.resultCode === undefined
  return { is: 'unsent', class: failureClass, message, isDirectoryWide: !isOfEntry && troubleOf(error) !== undefined }
}

/** The DN to bind as; `undefined` when only a search can tell. */
function knownDn({ target, account }: LoadedAccount): string | undefined {
  return 'dn' in target ? target.dn : account.dn
}
