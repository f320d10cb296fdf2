import { abortable } from '../../lib/abortable.ts'
import type { Clock } from '../../lib/clock.ts'
import { AppError, notFound, unavailable } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import type { DirectoryDoor } from '../directory/directory.ts'
import { VersionConflict } from '../storage/driver.ts'
import { Contact } from './contact.ts'
import { decide } from './decide.ts'
import type { DirectoryGuard } from './guard.ts'
import type { AccountHost, LoadedAccount } from './host.ts'
import { Rotation } from './rotation.ts'
import type { TurnReason, TurnStep, TurnSteps } from './turn-step.ts'

/**
 * Turns passwords so that none is ever lost. One turn reads the record, decides (`decide.ts`), acts (`rotation.ts`) and, when somebody else
 * changed the record meanwhile, begins again; the record alone says where an account stands, so a turn may be killed anywhere.
 *
 * In one process the turns of an account asked for while one is at work share its result; between processes the versioned write of
 * `pending` is the claim. Leaves to others: what is due when (`rotation-worker.ts`), whether the directory may be contacted (`guard.ts`).
 */
export interface AccountTurner extends AsyncDisposable {
  /** Waits until no turn of an account (with a slash at the end, of all below) is at work in this process, but no longer than so. */
  settled(lockKey: string, withinMs: number): Promise<void>
  /**
   * Turns the password of an account and resolves with the record as it is afterwards. Throws `invalid` (the directory refused),
   * `unavailable` (no answer, or none yet; retries go on in the background) or `not-found` (no such record any more). An aborted
   * `signal` ends the waiting, not the turn.
   */
  turn(host: AccountHost, why: TurnReason, signal: AbortSignal): Promise<LoadedAccount>
}

export interface AccountTurnerDeps {
  readonly door: DirectoryDoor
  readonly guard: DirectoryGuard
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** No other process can have the store open: a pending password of another process is that of a dead one. Default false. */
  readonly isExclusive?: boolean
  readonly steps?: TurnSteps
}

const POLL_MS = 250
const LONGEST_WAIT_MS = 30_000
const SHORT_WAIT_MS = 3_000
const WAITING = {
  held: 'another server is turning the password of this account; it goes on in the background',
  'too-early':
    'the outcome of the last rotation of this account is not known yet; the directory is asked again in the background',
}
const MOST_CONFLICTS = 20

export function createAccountTurner(deps: AccountTurnerDeps): AccountTurner {
  return new Turner(deps)
}

class Turner implements AccountTurner {
  readonly #deps: AccountTurnerDeps
  /** This process, as `pending.holder` names it. */
  readonly #holder: string
  readonly #rotation: Rotation
  readonly #running = new Map<string, Promise<Ended>>()
  readonly #stop = new AbortController()

  constructor(deps: AccountTurnerDeps) {
    this.#deps = deps
    this.#holder = deps.random.uuid()
    const reached = async (step: TurnStep, host: AccountHost) => {
      deps.log.debug({ step, account: host.lockKey }, 'turn')
      await deps.steps?.reached(step)
    }
    const contact = new Contact({ ...deps, reached, holder: this.#holder, signal: this.#stop.signal })
    this.#rotation = new Rotation({ ...deps, contact, reached, holder: this.#holder })
  }

  async turn(host: AccountHost, why: TurnReason, signal: AbortSignal): Promise<LoadedAccount> {
    for (;;) {
      signal.throwIfAborted()
      const shared = this.#running.get(host.lockKey)
      if (!shared) break
      const ended = await abortable(shared.catch(unlessGone), signal)
      // Its record went; the one that is there now has not been turned.
      if (!ended) continue
      // A turn that only had to resolve something, and found nothing to resolve, is no rotation.
      if (ended.isTurned || why === 'recover') return ended.loaded
    }
    const own = this.#run(host, why).finally(() => this.#running.delete(host.lockKey))
    this.#running.set(host.lockKey, own)
    return (await abortable(own, signal)).loaded
  }

  async settled(lockKey: string, withinMs: number): Promise<void> {
    const isMeant = (key: string) => key === lockKey || (lockKey.endsWith('/') && key.startsWith(lockKey))
    const turns = [...this.#running].filter(([key]) => isMeant(key)).map(([, turn]) => turn)
    if (turns.length === 0) return
    const ended = new AbortController()
    const tooLate = this.#deps.clock.sleep(withinMs, ended.signal).catch(() => undefined)
    await Promise.race([Promise.allSettled(turns), tooLate])
    ended.abort()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(unavailable('the server is shutting down'))
    await Promise.allSettled(this.#running.values())
  }

  async #run(host: AccountHost, why: TurnReason): Promise<Ended> {
    const { clock, isExclusive = false } = this.#deps
    let loaded = await requireRecord(host)
    const askedAtVersion = loaded.account.credentialVersion
    const waitUntilMs = clock.monotonicMs() + LONGEST_WAIT_MS
    for (let conflicts = 0; ; ) {
      this.#stop.signal.throwIfAborted()
      const context = { now: clock.now(), holder: this.#holder, isExclusive, askedAtVersion }
      const decision = decide(loaded.account, why, context)
      try {
        switch (decision.do) {
          case 'finish':
            return { loaded, isTurned: loaded.account.credentialVersion > askedAtVersion }
          case 'wait': {
            const leftMs = decision.until.getTime() - context.now.getTime()
            if (clock.monotonicMs() > waitUntilMs || (decision.why === 'too-early' && leftMs > SHORT_WAIT_MS))
              throw unavailable(WAITING[decision.why])
            await clock.sleep(Math.min(leftMs, POLL_MS), this.#stop.signal)
            loaded = await requireRecord(host)
            break
          }
          case 'resolve':
            loaded = await this.#rotation.resolve(host, loaded)
            break
          case 'begin':
            loaded = await this.#rotation.begin(host, loaded)
            break
          default:
            return decision satisfies never
        }
      } catch (error) {
        if (!(error instanceof VersionConflict)) throw error
        conflicts += 1
        if (conflicts > MOST_CONFLICTS)
          throw unavailable('the record of this account is being changed over and over; try again', { cause: error })
        loaded = await requireRecord(host)
      }
    }
  }
}

function unlessGone(error: unknown): undefined {
  if (!(error instanceof AppError) || error.kind !== 'not-found') throw error
}

interface Ended {
  readonly loaded: LoadedAccount
  readonly isTurned: boolean
}

export async function requireRecord(host: AccountHost): Promise<LoadedAccount> {
  const loaded = await host.load()
  if (!loaded) throw notFound('the role was deleted while its password was being turned')
  return loaded
}
