import type { Clock } from '../../lib/clock.ts'
import { AppError, messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import { outcomeOf } from './outcome.ts'
import type { WorkQueue } from './queue.ts'

/** What trying again cannot help is still looked at now and then: missing rights, say, are given without a change of the object. */
const STALLED_MS = 300_000

/** What a reconcile asks for. Without a time the key rests until something changes or the slow resync comes. */
export interface ReconcileResult {
  readonly lookAgainAt?: Date
  readonly lookAgainAfterMs?: number
}

export interface ControllerOptions {
  readonly name: string
  readonly queue: WorkQueue
  /** Workers begin when this resolves: no decision is made on half a picture. */
  readonly synced: Promise<void>
  /** Brings one object to what it should be; must be repeatable at any point. Throws to be tried again (`outcome.ts`). */
  readonly reconcile: (key: string, signal: AbortSignal) => Promise<ReconcileResult | undefined>
  readonly workers?: number
  /** How long work under way may go on after the stop, before its signal aborts. */
  readonly graceMs?: number
  readonly onOutcome?: (outcome: { readonly key: string; readonly ms: number; readonly error?: unknown }) => void
}

/** Work that heeds its signal has ended by then; who does not is not waited for. */
const BREAK_OFF_MS = 1_000

/**
 * Runs `workers` over the queue until `signal` aborts; resolves after the last reconcile has ended, at most `graceMs` and a second
 * later. Two workers never work on one key. A reconcile that throws is logged once and tried again: 1 s later, doubling up to 5 min; after 5 min at once where the error
 * says that trying again does not help.
 */
export async function runController(
  options: ControllerOptions,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  signal: AbortSignal,
): Promise<void> {
  const { name, queue, synced, workers = 4, graceMs = 20_000 } = options
  const stopped = new Promise<void>((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
  const delays = queue.run(signal)
  await Promise.race([synced, stopped])
  const late = new AbortController()
  const ended = new AbortController()
  const underWay = new Set<string>()
  const grace = stopped.then(async () => {
    try {
      await clock.sleep(graceMs, ended.signal)
      late.abort(new Error('the controller is stopping'))
      await clock.sleep(BREAK_OFF_MS, ended.signal)
      log.warn({ controller: name, keys: [...underWay] }, 'stopping without waiting for what is under way')
    } catch {
      // All work has ended.
    }
  })
  const worked = Promise.all(Array.from({ length: workers }, () => work())).then(() => ended.abort())
  await Promise.race([worked, grace])
  await delays

  async function work(): Promise<void> {
    for (let key = await queue.take(signal); key !== undefined; key = await queue.take(signal)) {
      await once(key)
    }
  }

  async function once(key: string): Promise<void> {
    const startedMs = clock.monotonicMs()
    underWay.add(key)
    try {
      const result = await options.reconcile(key, late.signal)
      queue.forget(key)
      if (result?.lookAgainAt) queue.addAt(key, result.lookAgainAt)
      if (result?.lookAgainAfterMs !== undefined) queue.addAfter(key, result.lookAgainAfterMs)
      const ms = clock.monotonicMs() - startedMs
      log.debug({ controller: name, key, ms }, 'reconciled')
      options.onOutcome?.({ key, ms })
    } catch (error) {
      if (late.signal.aborted) return log.debug({ controller: name, key, error: messageOf(error) }, 'broken off')
      const { reason, retry } = outcomeOf(error)
      const waitMs = retry === 'backoff' ? queue.retry(key) : STALLED_MS
      if (retry === 'stalled') queue.addAfter(key, STALLED_MS, 3)
      const ms = clock.monotonicMs() - startedMs
      // What nobody foresaw is our bug and needs its stack; what was foreseen needs its words.
      if (error instanceof AppError)
        log.warn({ controller: name, key, reason, error: messageOf(error), waitMs }, 'reconcile failed')
      else log.error({ controller: name, key, err: error, waitMs }, 'reconcile failed unexpectedly')
      options.onOutcome?.({ key, ms, error })
    } finally {
      underWay.delete(key)
      queue.done(key)
    }
  }
}
