import type { Clock } from '../../lib/clock.ts'
import { AppError } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Worker } from '../../lib/worker.ts'
import type { RecordKind, Store } from '../storage/store.ts'
import { rotationQueue, turningQueue } from './account.ts'
import type { DirectoryGuard } from './guard.ts'
import type { AccountHost } from './host.ts'
import type { AccountTurner } from './turn.ts'
import type { TurnReason } from './turn-step.ts'

/** More than the directory door lets to one server at once, so that it is never idle while others write to the store. */
const PARALLEL_PER_MOUNT = 16
/** Records claimed in one write, ahead of free places. */
const CLAIMED_AT_ONCE = 32
const CLAIM_MS = 20_000
/** A record claimed but not begun is left to whoever claims it next well before its claim ends. */
const CLAIM_USABLE_MS = 10_000
/** Longer than any pending password waits: its hold or its longest back-off. */
const RECOVERY_HORIZON_MS = 2 * 3_600_000
const RETRY_MS = 1_000
/** Among the running turns, whose keys are those of records. */
const PROBE = ''
/** How long a mount or a due time that somebody else wrote may go unnoticed. */
const LONGEST_SLEEP_MS = 10_000

/** Where the accounts of a kind of record are. */
export interface RotationHosts<T> {
  readonly recordKind: RecordKind<T>
  mounts(): Promise<readonly { readonly id: string }[]>
  hostFor(mountId: string, recordKey: string): AccountHost
  /** Asks the mount's directory for anything at all, through its guard. */
  probe(mountId: string, signal: AbortSignal): Promise<void>
}

export interface RotationWorker extends Worker {
  /** Call it after a write that may have made something due earlier. */
  poke(): void
}

export interface RotationWorkerDeps<T> {
  readonly store: Store
  readonly turner: AccountTurner
  readonly guard: DirectoryGuard
  readonly hosts: RotationHosts<T>
  readonly clock: Clock
  readonly log: Logger
  /** No other process can have the store open, so what is held by another one is held by a dead one. */
  readonly isExclusive: boolean
}

/**
 * Turns what is due: per mount, first passwords that are in the air, then rotations, the most overdue first, several at once with
 * continuous refill. Mounts and roles never wait for each other; while a mount's guard is closed its records are left alone but for
 * the one that is the probe. Reads nothing in bulk: at start an exclusive server takes all that is in the air from its own queue,
 * whatever its due time, because its holder is dead.
 */
export function createRotationWorker<T>(deps: RotationWorkerDeps<T>): RotationWorker {
  return new Rotation(deps)
}

class Rotation<T> implements RotationWorker {
  readonly name = 'rotation'
  readonly #deps: RotationWorkerDeps<T>
  readonly #lanes = new Map<string, Lane>()
  #changed = Promise.withResolvers<void>()

  constructor(deps: RotationWorkerDeps<T>) {
    this.#deps = deps
  }

  poke(): void {
    this.#changed.resolve()
  }

  /** What changed while the last tick ran counts too. */
  wake(): Promise<void> {
    return this.#changed.promise
  }

  async tick(signal: AbortSignal): Promise<number> {
    const { clock, hosts, log } = this.#deps
    this.#changed = Promise.withResolvers<void>()
    let waitMs = LONGEST_SLEEP_MS
    const mounts = await hosts.mounts()
    for (const { id } of mounts) {
      try {
        const next = await this.#serve(id, signal)
        if (next) waitMs = Math.min(waitMs, Math.max(next.getTime() - clock.now().getTime(), 0))
      } catch (error) {
        // A record of this mount that does not open, say: the other mounts go on.
        log.error({ err: error, mount: id }, 'the due rotations of a mount cannot be read; they are tried again')
      }
    }
    const ids = new Set(mounts.map(({ id }) => id))
    for (const [id, lane] of this.#lanes) if (!ids.has(id) && lane.running.size === 0) this.#lanes.delete(id)
    return waitMs
  }

  /** Starts what can be started on a mount; returns when to look again, if not sooner for an ended turn. */
  async #serve(mountId: string, signal: AbortSignal): Promise<Date | undefined> {
    const { store, guard, clock } = this.#deps
    const lane = this.#laneOf(mountId)
    const state = await guard.state(mountId)
    let places = PARALLEL_PER_MOUNT - lane.running.size
    if (!state.isOpen) {
      if (state.probeAt > clock.now()) return state.probeAt
      // One as the probe, beside whatever still hangs.
      places = Math.min(places, 1)
    }
    while (places > 0) {
      if (lane.waiting.length === 0) await this.#claim(mountId, lane, state.isOpen ? CLAIMED_AT_ONCE : 1)
      const claimed = lane.waiting.shift()
      if (!claimed) break
      if (claimed.usableUntilMs < clock.monotonicMs() || lane.running.has(claimed.key)) continue
      this.#start(mountId, lane, claimed, signal)
      places -= 1
    }
    if (places === 0) return undefined
    if (!state.isOpen) {
      // Nothing is due that would find out whether the directory is back.
      this.#probe(mountId, lane, signal)
      return new Date(clock.now().getTime() + RETRY_MS)
    }
    const next = [await store.nextDue(turningQueue(mountId)), await store.nextDue(rotationQueue(mountId))]
    return next.reduce((first, at) => (at && (!first || at < first) ? at : first), undefined)
  }

  async #claim(mountId: string, lane: Lane, limit: number): Promise<void> {
    const { store, hosts, clock } = this.#deps
    const now = clock.now()
    const usableMs = clock.monotonicMs() + CLAIM_USABLE_MS
    const take = async (
      queue: string,
      why: TurnReason,
      from: { now: Date; until: Date },
      most: number,
      usableUntilMs = usableMs,
    ) => {
      const keys = most > 0 ? await store.claimKeys(hosts.recordKind, queue, { ...from, limit: most }) : []
      lane.waiting.push(...keys.map((key) => ({ key, why, usableUntilMs })))
      return keys.length
    }
    if (!lane.isRecovered) {
      // All that is due before the horizon is claimed to the horizon itself, so nothing is taken twice; a turn's end gives its record a due
      // time again. The horizon stays where it was at the start: one that moved on would find the same records again.
      const from = { now: new Date(lane.horizonMs - 1), until: new Date(lane.horizonMs) }
      const found = await take(turningQueue(mountId), 'recover', from, limit, Number.POSITIVE_INFINITY)
      if (found > 0) return
      lane.isRecovered = true
    }
    const from = { now, until: new Date(now.getTime() + CLAIM_MS) }
    const resolved = await take(turningQueue(mountId), 'recover', from, limit)
    await take(rotationQueue(mountId), 'due', from, limit - resolved)
  }

  #start(mountId: string, lane: Lane, claimed: Claimed, signal: AbortSignal): void {
    const turn = this.#turn(mountId, lane, claimed, signal)
      .catch((err: unknown) => {
        if (!signal.aborted) this.#deps.log.error({ err, record: claimed.key }, 'a rotation failed unexpectedly')
      })
      .finally(() => {
        lane.running.delete(claimed.key)
        this.poke()
      })
    lane.running.set(claimed.key, turn)
  }

  #probe(mountId: string, lane: Lane, signal: AbortSignal): void {
    if (lane.running.has(PROBE)) return
    const probe = this.#deps.hosts
      .probe(mountId, signal)
      .catch((error: unknown) => {
        if (!signal.aborted && !(error instanceof AppError))
          this.#deps.log.error({ err: error, mount: mountId }, 'a directory cannot be probed')
      })
      .finally(() => lane.running.delete(PROBE))
    lane.running.set(PROBE, probe)
  }

  async #turn(mountId: string, lane: Lane, claimed: Claimed, signal: AbortSignal): Promise<void> {
    const { turner, hosts, store, clock, log } = this.#deps
    const { key, why } = claimed
    try {
      await turner.turn(hosts.hostFor(mountId, key), why, signal)
    } catch (error) {
      if (signal.aborted) return
      // What the directory did is in the record, its event and the guard; anything else is our bug or the store's trouble.
      if (error instanceof AppError) log.debug({ record: key, reason: error.message }, 'a rotation failed')
      else log.error({ err: error, record: key }, 'a rotation failed unexpectedly')
      if (claimed.usableUntilMs !== Number.POSITIVE_INFINITY) return
      // Nothing gave it a due time again, and the horizon is far: it is tried again soon.
      await clock.sleep(RETRY_MS, signal).catch(() => undefined)
      const due = (await store.read(hosts.recordKind, key))?.due
      if (due?.at.getTime() === lane.horizonMs) lane.waiting.push(claimed)
    }
  }

  #laneOf(mountId: string): Lane {
    const known = this.#lanes.get(mountId)
    if (known) return known
    const { clock, isExclusive } = this.#deps
    const horizonMs = clock.now().getTime() + RECOVERY_HORIZON_MS
    const lane: Lane = { running: new Map(), waiting: [], isRecovered: !isExclusive, horizonMs }
    this.#lanes.set(mountId, lane)
    return lane
  }
}

interface Claimed {
  readonly key: string
  readonly why: TurnReason
  readonly usableUntilMs: number
}

/** What this process does on one mount. */
interface Lane {
  readonly running: Map<string, Promise<void>>
  readonly waiting: Claimed[]
  isRecovered: boolean
  readonly horizonMs: number
}
