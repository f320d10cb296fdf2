import * as z from 'zod'
import { backoffMs } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import { AppError } from '../../lib/errors.ts'
import { KeyedLock } from '../../lib/keyed-lock.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import { isDirectoryError } from '../directory/errors.ts'
import { VersionConflict } from '../storage/driver.ts'
import { type Change, instantCodec, put, recordKind, remove, type Store } from '../storage/store.ts'
import { troubleOf } from './outcome.ts'

const PROBE_MS = 5 * 60_000
const UNREACHABLE = { firstMs: 1_000, limitMs: 60_000 }

/**
 * Stands between us and the directory of a mount. Two kinds of trouble close it:
 *
 * - our own bind was refused: going on could lock the account that everything depends on. A durable record says so; until the configuration
 *   is written anew or a bind works, one piece of work in 5 minutes is let through, whoever asks, on whatever server, also after a restart;
 * - the directory cannot be reached: known to this process only; one probe at a time, 1 s to 1 min apart, everybody else fails at once.
 *
 * Trouble with one account (refused, rejected, hanging) never closes it.
 */
export interface DirectoryGuard {
  /** Runs work that needs the mount's directory. Throws `GuardClosed` (`unavailable`) without running it while closed. */
  run<T>(mountId: string, work: (connect: Connect) => Promise<T>): Promise<T>
  state(mountId: string): Promise<GuardState>
  /** Opens the guard again: the mount's configuration changed (or the mount is gone). */
  reset(mountId: string): Promise<void>
}

/**
 * Wraps the part of the work that binds as ourselves; the work calls `bound` when it has its connection. Until then nobody else of the mount
 * begins, so that work started at one moment does not present a refused password many times over.
 */
export type Connect = <T>(work: (bound: () => void) => Promise<T>) => Promise<T>

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
        ? 'the directory refuses the bind of this mount: it is asked again every 5 minutes, or once the configuration is written'
        : 'the directory cannot be reached; it is tried again within a minute'
    super('unavailable', message, { reason: 'guard-closed' })
    this.name = 'GuardClosed'
    this.why = why
    this.probeAt = probeAt
  }
}

const refusalKind = recordKind('bind-refusal/', z.object({ since: instantCodec, probeAt: instantCodec }))

interface Outage {
  readonly since: Date
  failures: number
  probeAt: Date
  isProbing: boolean
}

/** Opens the guard of a mount in a store that no server runs on. */
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
  readonly #connecting = new KeyedLock()

  constructor({ store, clock, random, log }: { store: Store; clock: Clock; random: Random; log: Logger }) {
    this.#store = store
    this.#clock = clock
    this.#random = random
    this.#log = log
  }

  async run<T>(mountId: string, work: (connect: Connect) => Promise<T>): Promise<T> {
    const pass = await this.#admit(mountId)
    const connect: Connect = (use) => this.#connect(mountId, pass, use)
    try {
      return await this.#watched(mountId, pass, () => work(connect))
    } finally {
      const outage = pass.isProbe ? this.#outages.get(mountId) : undefined
      if (outage) outage.isProbing = false
    }
  }

  async state(mountId: string): Promise<GuardState> {
    const refusal = await this.#store.read(refusalKind, mountId)
    if (refusal) return { isOpen: false, why: 'bind-refused', ...refusal.value }
    const outage = this.#outages.get(mountId)
    if (!outage) return { isOpen: true }
    return { isOpen: false, why: 'unavailable', since: outage.since, probeAt: outage.probeAt }
  }

  async reset(mountId: string): Promise<void> {
    this.#outages.delete(mountId)
    if (await this.#store.read(refusalKind, mountId))
      await this.#store.commit([remove(refusalKind, mountId, { expected: 'any' })])
  }

  async #connect<T>(mountId: string, pass: Pass, use: (bound: () => void) => Promise<T>): Promise<T> {
    const { promise: bound, resolve } = Promise.withResolvers<void>()
    let result: Promise<T> | undefined
    await this.#connecting.run(mountId, async () => {
      if (!pass.isProbe) await this.#requireOpen(mountId)
      // A failure is noted before the next one in the line is let go.
      result = this.#watched(mountId, pass, () =>
        use(() => {
          pass.isBound = true
          resolve()
        }),
      )
      await Promise.race([bound, result.catch(() => undefined)])
    })
    if (!result) throw new Error('the work that needs a connection was not begun')
    return result
  }

  /** Lets work in while open, and as the one probe when its time has come. */
  async #admit(mountId: string): Promise<Pass> {
    const now = this.#clock.now()
    const refusal = await this.#store.read(refusalKind, mountId)
    if (refusal) {
      if (refusal.value.probeAt > now) throw new GuardClosed('bind-refused', refusal.value.probeAt)
      // The next probe's time is moved before this one begins: who loses this race, here or on another server, is no probe.
      const next = { ...refusal.value, probeAt: new Date(now.getTime() + PROBE_MS) }
      const moved = put(refusalKind, mountId, next, { expected: refusal.version })
      await this.#store.commit([moved]).catch((error: unknown) => {
        throw error instanceof VersionConflict ? new GuardClosed('bind-refused', next.probeAt) : error
      })
      return { isProbe: true, wasRefused: true }
    }
    const outage = this.#outages.get(mountId)
    if (!outage) return { isProbe: false, wasRefused: false }
    if (outage.isProbing || outage.probeAt > now) throw new GuardClosed('unavailable', outage.probeAt)
    outage.isProbing = true
    return { isProbe: true, wasRefused: false }
  }

  async #requireOpen(mountId: string): Promise<void> {
    const state = await this.state(mountId)
    if (!state.isOpen) throw new GuardClosed(state.why, state.probeAt)
  }

  async #watched<T>(mountId: string, pass: Pass, work: () => Promise<T>): Promise<T> {
    try {
      const result = await work()
      await this.#noteAnswer(mountId, pass)
      return result
    } catch (error) {
      if (error instanceof GuardClosed) throw error
      const trouble = troubleOf(error)
      if (trouble === 'bind-refused') await this.#noteRefusal(mountId)
      // Once connected, no answer is the trouble of one entry until a new connection fails too.
      else if (trouble === 'unreachable' && !(pass.isBound && codeOf(error) === undefined))
        this.#noteOutage(mountId, pass)
      else if (trouble === 'answered') await this.#noteAnswer(mountId, pass)
      throw error
    }
  }

  /** The directory answered to us as ourselves. */
  async #noteAnswer(mountId: string, pass: Pass): Promise<void> {
    this.#outages.delete(mountId)
    if (!pass.wasRefused) return
    pass.wasRefused = false
    await this.#store.commit([remove(refusalKind, mountId, { expected: 'any' })])
    this.#log.info({ mount: mountId }, 'the directory accepts our bind again')
  }

  async #noteRefusal(mountId: string): Promise<void> {
    this.#outages.delete(mountId)
    const now = this.#clock.now()
    const known = await this.#store.read(refusalKind, mountId)
    if (known && known.value.probeAt > now) return
    const refusal = { since: known?.value.since ?? now, probeAt: new Date(now.getTime() + PROBE_MS) }
    await this.#store.commit([put(refusalKind, mountId, refusal, { expected: 'any' })])
    this.#log.error(
      { mount: mountId, probeAt: refusal.probeAt },
      'the directory refuses the bind of the mount itself: no contact but one probe in 5 minutes until the configuration is corrected',
    )
  }

  #noteOutage(mountId: string, pass: Pass): void {
    const known = this.#outages.get(mountId)
    // Many fail at the same moment for the same cause; only the first and the probes count.
    if (known && !pass.isProbe) return
    if (pass.hasFailed) return
    pass.hasFailed = true
    const now = this.#clock.now()
    const failures = (known?.failures ?? 0) + 1
    const probeAt = new Date(now.getTime() + backoffMs(failures, UNREACHABLE, this.#random))
    this.#outages.set(mountId, { since: known?.since ?? now, failures, probeAt, isProbing: false })
    this.#log.warn({ mount: mountId, probeAt, failures }, 'the directory cannot be reached')
  }
}

interface Pass {
  readonly isProbe: boolean
  wasRefused: boolean
  hasFailed?: boolean
  /** Its connection was got. */
  isBound?: boolean
}

function codeOf(error: unknown): number | undefined {
  return isDirectoryError(error) ? error.resultCode : undefined
}
