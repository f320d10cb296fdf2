import * as z from 'zod'
import { backoffMs } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import { AppError, unavailable } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import type { Admission } from '../directory/directory.ts'
import { isDirectoryError } from '../directory/errors.ts'
import { VersionConflict } from '../storage/driver.ts'
import { type Change, instantCodec, put, recordKind, remove, type Store } from '../storage/store.ts'
import { BindLines } from './bind-lines.ts'
import { troubleOf } from './outcome.ts'

const PROBE_MS = 5 * 60_000
/** Soon enough after a directory's return to turn what was in the air within seconds; under one connection a second. */
const UNREACHABLE = { firstMs: 1_000, limitMs: 3_000 }

/**
 * Stands between us and the directory of a mount. Two kinds of trouble close it:
 *
 * - our own bind was refused: going on could lock the account that everything depends on. A durable record says so; until the connection is
 *   configured anew or a bind works, one piece of work in 5 minutes is let through, whoever asks, on whatever server, also after a restart;
 * - the directory cannot be reached: known to this process only; one probe at a time, 1 to 3 s apart, everybody else fails at once.
 *
 * Trouble with one account (refused, rejected, hanging) never closes it.
 */
export interface DirectoryGuard {
  /**
   * Runs work that needs the mount's directory. Throws `GuardClosed` (`unavailable`) without running it while closed. Sessions that bind as
   * the mount itself are given `admission`: at a server such binds go one by one, each only if nothing is known against it.
   */
  run<T>(mountId: string, work: (admission: Admission) => Promise<T>): Promise<T>
  state(mountId: string): Promise<GuardState>
  /** Opens the guard: the mount's connection is configured anew. What still goes on with the old one counts no longer, and binds no more. */
  reset(mountId: string): Promise<void>
}

export type GuardState =
  | { readonly isOpen: true }
  | {
      readonly isOpen: false
      readonly why: 'bind-refused' | 'unavailable'
      readonly since: Date
      /** When the next piece of work is let through as a probe. */
      readonly probeAt: Date
    }

/** Work was not run: the guard is closed. */
export class GuardClosed extends AppError {
  readonly why: 'bind-refused' | 'unavailable'
  readonly probeAt: Date
  constructor(why: 'bind-refused' | 'unavailable', probeAt: Date) {
    const message =
      why === 'bind-refused'
        ? 'the directory refuses the bind of this mount: it is asked again every 5 minutes, or once the connection is configured anew'
        : 'the directory cannot be reached; it is tried again within seconds'
    super('unavailable', message, { reason: 'guard-closed' })
    this.name = 'GuardClosed'
    this.why = why
    this.probeAt = probeAt
  }
}

/** Since when our bind is refused, and when it is tried again; without them nothing is known against the connection as it is configured now. */
const refusalKind = recordKind('bind-refusal/', z.object({ since: instantCodec, probeAt: instantCodec }).partial())

interface Outage {
  readonly since: Date
  failures: number
  probeAt: Date
  isProbing: boolean
}

/** Opens the guard of a mount in a store that no server runs on, or of a mount that goes. */
export function openedGuard(mountId: string): Change {
  return remove(refusalKind, mountId, { expected: 'any' })
}

export function createDirectoryGuard(deps: {
  store: Store
  clock: Clock
  random: Random
  log: Logger
}): DirectoryGuard {
  return new Guard(deps)
}

class Guard implements DirectoryGuard {
  readonly #store: Store
  readonly #clock: Clock
  readonly #random: Random
  readonly #log: Logger
  readonly #outages = new Map<string, Outage>()
  /** How often a mount was configured anew in this process: an outage is that of one configuration. */
  readonly #resets = new Map<string, number>()
  readonly #lines = new BindLines()

  constructor({ store, clock, random, log }: { store: Store; clock: Clock; random: Random; log: Logger }) {
    this.#store = store
    this.#clock = clock
    this.#random = random
    this.#log = log
  }

  async run<T>(mountId: string, work: (admission: Admission) => Promise<T>): Promise<T> {
    const pass = await this.#admit(mountId)
    const admission: Admission = {
      isProof: pass.isProof,
      entered: () => {
        const outage = this.#outages.get(mountId)
        if (outage && !pass.isProbe) throw new GuardClosed('unavailable', this.#probeOf(outage))
      },
      bind: (server, signal, bind) =>
        this.#lines.run(`${mountId} ${server}`, signal, () => this.#bind(mountId, pass, bind)),
      connected() {
        pass.isConnected = true
      },
    }
    try {
      const result = await work(admission)
      this.#outages.delete(mountId)
      return result
    } catch (error) {
      if (error instanceof VersionConflict) await this.#giveBack(mountId, pass)
      else this.#note(mountId, pass, error)
      throw error
    } finally {
      const outage = pass.isProbe ? this.#outages.get(mountId) : undefined
      if (outage?.isProbing) {
        outage.isProbing = false
        outage.probeAt = this.#clock.now()
      }
    }
  }

  async state(mountId: string): Promise<GuardState> {
    const refusal = (await this.#store.readRemembered(refusalKind, mountId))?.value
    if (refusal?.since && refusal.probeAt)
      return { isOpen: false, why: 'bind-refused', since: refusal.since, probeAt: refusal.probeAt }
    const outage = this.#outages.get(mountId)
    if (!outage) return { isOpen: true }
    return { isOpen: false, why: 'unavailable', since: outage.since, probeAt: this.#probeOf(outage) }
  }

  async reset(mountId: string): Promise<void> {
    this.#resets.set(mountId, (this.#resets.get(mountId) ?? 0) + 1)
    this.#outages.delete(mountId)
    await this.#store.commit([put(refusalKind, mountId, {}, { expected: 'any' })])
  }

  /** Lets work in while open, and as the one probe when its time has come. */
  async #admit(mountId: string): Promise<Pass> {
    const now = this.#clock.now()
    const resets = this.#resets.get(mountId) ?? 0
    const refusal = await this.#store.readRemembered(refusalKind, mountId)
    const pass: Pass = {
      isProbe: false,
      isProof: false,
      hasAsked: false,
      isConnected: false,
      resets,
      version: refusal?.version ?? 0,
    }
    if (refusal?.value.probeAt) {
      if (refusal.value.probeAt > now) throw new GuardClosed('bind-refused', refusal.value.probeAt)
      // The next probe's time is moved before this one begins: who loses this race, here or on another server, is no probe.
      const probeAt = new Date(now.getTime() + PROBE_MS)
      const moved = put(refusalKind, mountId, { ...refusal.value, probeAt }, { expected: refusal.version })
      const versions = await this.#store.commit([moved]).catch((error: unknown) => {
        throw error instanceof VersionConflict ? new GuardClosed('bind-refused', probeAt) : error
      })
      const [version = 0] = versions.values()
      return { ...pass, isProbe: true, isProof: true, version }
    }
    const outage = this.#outages.get(mountId)
    if (!outage) return pass
    if (outage.isProbing || outage.probeAt > now) throw new GuardClosed('unavailable', this.#probeOf(outage))
    outage.isProbing = true
    return { ...pass, isProbe: true }
  }

  /** One bind as the mount. What it tells about the mount is on record before the next is sent. */
  async #bind(mountId: string, pass: Pass, bind: () => Promise<void>): Promise<void> {
    const known = await this.#store.readRemembered(refusalKind, mountId)
    if ((known?.version ?? 0) !== pass.version) {
      if (known?.value.probeAt) throw new GuardClosed('bind-refused', known.value.probeAt)
      throw unavailable('the connection of this mount has been configured anew; try again')
    }
    pass.hasAsked = true
    try {
      await bind()
    } catch (error) {
      if (isDirectoryError(error) && error.class === 'bind-refused') await this.#noteRefusal(mountId, pass)
      throw error
    }
    if (!known?.value.probeAt) return
    await this.#record(mountId, pass, {})
    this.#log.info({ mount: mountId }, 'the directory accepts our bind again')
  }

  /** Work whose records had changed before it asked leaves the probe to the next. */
  async #giveBack(mountId: string, pass: Pass): Promise<void> {
    if (!pass.isProof || pass.hasAsked) return
    const refusal = (await this.#store.readRemembered(refusalKind, mountId))?.value
    if (refusal?.since) await this.#record(mountId, pass, { since: refusal.since, probeAt: this.#clock.now() })
  }

  async #noteRefusal(mountId: string, pass: Pass): Promise<void> {
    this.#outages.delete(mountId)
    const now = this.#clock.now()
    const since = (await this.#store.readRemembered(refusalKind, mountId))?.value.since ?? now
    const probeAt = new Date(now.getTime() + PROBE_MS)
    if (!(await this.#record(mountId, pass, { since, probeAt }))) return
    this.#log.error(
      { mount: mountId, probeAt },
      'the directory refuses the bind of the mount itself: no contact but one probe in 5 minutes until the connection is configured anew',
    )
  }

  /** Writes what a bind has shown, unless the mount was configured anew or somebody else has shown it meanwhile. */
  async #record(mountId: string, pass: Pass, refusal: { since?: Date; probeAt?: Date }): Promise<boolean> {
    try {
      const versions = await this.#store.commit([put(refusalKind, mountId, refusal, { expected: pass.version })])
      const [version = 0] = versions.values()
      pass.version = version
      return true
    } catch (error) {
      if (error instanceof VersionConflict) return false
      throw error
    }
  }

  #note(mountId: string, pass: Pass, error: unknown): void {
    const trouble = troubleOf(error)
    if (trouble === 'answered') this.#outages.delete(mountId)
    // Once connected, no answer is the trouble of one entry until a new connection fails too.
    if (trouble === 'unreachable' && !(pass.isConnected && codeOf(error) === undefined)) this.#noteOutage(mountId, pass)
  }

  #noteOutage(mountId: string, pass: Pass): void {
    const known = this.#outages.get(mountId)
    // Many fail at the same moment for the same cause; only the first and the probes count.
    if (known && !pass.isProbe) return
    if (pass.resets !== (this.#resets.get(mountId) ?? 0)) return
    const now = this.#clock.now()
    const failures = (known?.failures ?? 0) + 1
    const probeAt = new Date(now.getTime() + backoffMs(failures, UNREACHABLE, this.#random))
    this.#outages.set(mountId, { since: known?.since ?? now, failures, probeAt, isProbing: false })
    this.#log.warn({ mount: mountId, probeAt, failures }, 'the directory cannot be reached')
  }

  /** Whoever waits for a probe that is under way looks again later. */
  #probeOf({ isProbing, probeAt }: Outage): Date {
    return isProbing ? new Date(this.#clock.now().getTime() + UNREACHABLE.firstMs) : probeAt
  }
}

/** Work that was let in. */
interface Pass {
  readonly isProbe: boolean
  /** Of a refused bind. */
  readonly isProof: boolean
  /** It has sent a bind as the mount. */
  hasAsked: boolean
  /** Of the mount's record when it was let in, and after what its own binds wrote there. */
  version: number
  readonly resets: number
  /** It has a bound connection. */
  isConnected: boolean
}

function codeOf(error: unknown): number | undefined {
  return isDirectoryError(error) ? error.resultCode : undefined
}
