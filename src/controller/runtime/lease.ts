import type { Clock } from '../../lib/clock.ts'
import { messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import type { KubeClient } from './kube-client.ts'
import { isRecord, KubeError } from './kube-error.ts'
import { type KubeObject, LEASES } from './kube-object.ts'

/**
 * One leader among several processes, by a Lease of coordination.k8s.io.
 *
 * Whether a holder still lives is judged by seeing its record *change*, on our own monotonic clock; the times written in it are
 * for people only, since clocks of machines differ. A leader that could not renew for 10 s stops by itself, 5 s before anybody
 * else may begin. `isLeader` counts from before the last renewal was sent: ask it right before each write.
 */
export interface LeaseOptions {
  readonly namespace: string
  readonly name: string
  /** Whose process this is, for people. What makes it unlike every other, also the same container's life before, is added here. */
  readonly identity: string
}

export interface LeaseDeps {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'replace'>
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

const DURATION_S = 15
const RENEW_DEADLINE_MS = 10_000
const RETRY_MS = 2_000
const LAST_TRY_MS = 200
/** How often who waits looks whether the Lease was given free. */
const STANDBY_MS = 1_000

export class LeaderLease {
  readonly #options: LeaseOptions
  readonly #deps: LeaseDeps
  readonly #identity: string
  /** The Lease as last seen or written, and since when it has looked like that. */
  #seen: KubeObject | undefined
  #seenSinceMs = 0
  /** On the monotonic clock: until when we may act as the leader. */
  #leaderUntilMs = Number.NEGATIVE_INFINITY

  constructor(options: LeaseOptions, deps: LeaseDeps) {
    this.#options = options
    this.#deps = deps
    this.#identity = `${options.identity}_${deps.random.bytes(4).toString('hex')}`
  }

  isLeader(): boolean {
    return this.#deps.clock.monotonicMs() < this.#leaderUntilMs
  }

  /** The identity of the holder as last seen. */
  get holder(): string | undefined {
    return specOf(this.#seen).holder
  }

  /**
   * Campaigns until `signal` aborts; while leader runs `lead`, whose signal aborts when leadership is lost or `signal` aborts.
   * On a stop the Lease is given free after `lead` has ended, so that the next leader begins at once.
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (await this.#try(signal)) {
        this.#deps.log.info({ lease: this.#options.name }, 'became leader')
        await this.#leadWhileHeld(lead, signal)
        this.#deps.log.info({ lease: this.#options.name }, 'no longer leader')
      }
      await this.#pause(signal, STANDBY_MS)
    }
  }

  async #leadWhileHeld(lead: (signal: AbortSignal) => Promise<void>, stop: AbortSignal): Promise<void> {
    const lost = new AbortController()
    const over = new AbortController()
    const work = lead(AbortSignal.any([stop, lost.signal])).finally(() => over.abort())
    // Renewing goes on after a stop was asked for, until the work has ended: its last writes are still the leader's.
    const renewing = this.#renewUntil(over.signal).then(() => {
      if (!over.signal.aborted) lost.abort(new Error('leadership was lost'))
    })
    try {
      await work
    } finally {
      over.abort()
      await renewing
      if (this.isLeader()) await this.#release()
      this.#leaderUntilMs = Number.NEGATIVE_INFINITY
    }
  }

  /** Resolves when `over` aborts or the Lease could not be kept. */
  async #renewUntil(over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      // As the time grows short it is tried more often, so that trouble which ends in time costs nobody the lead.
      const leftMs = this.#leaderUntilMs - this.#deps.clock.monotonicMs()
      await this.#pause(over, RETRY_MS, leftMs > LAST_TRY_MS ? leftMs / 2 : leftMs)
      if (over.aborted) return
      if (!this.isLeader()) return
      await this.#try(over)
      if (!this.isLeader() || specOf(this.#seen).holder !== this.#identity) {
        this.#leaderUntilMs = Number.NEGATIVE_INFINITY
        return
      }
    }
  }

  async #pause(signal: AbortSignal, aroundMs: number, atMostMs = Number.POSITIVE_INFINITY): Promise<void> {
    const { clock, random } = this.#deps
    const ms = Math.max(0, Math.min(atMostMs, aroundMs * (0.8 + random.integer(401) / 1000)))
    await clock.sleep(ms, signal).catch(() => undefined)
  }

  /** One look and, where it may be, one write. True when the Lease is ours afterwards. Never throws. */
  async #try(signal: AbortSignal): Promise<boolean> {
    const { clock, log } = this.#deps
    const deadline = new AbortController()
    const leftMs = this.isLeader() ? this.#leaderUntilMs - clock.monotonicMs() : RENEW_DEADLINE_MS
    const timer = clock.sleep(leftMs, AbortSignal.any([signal, deadline.signal])).then(
      () => deadline.abort(new Error('the Lease could not be renewed in time')),
      () => undefined,
    )
    try {
      return await this.#acquire(AbortSignal.any([signal, deadline.signal]))
    } catch (error) {
      if (!signal.aborted) log.warn({ lease: this.#options.name, error: messageOf(error) }, 'Lease not renewed')
      return false
    } finally {
      deadline.abort()
      await timer
    }
  }

  async #acquire(signal: AbortSignal): Promise<boolean> {
    const { client, clock } = this.#deps
    const { namespace, name } = this.#options
    const call = { signal, urgent: true }
    // While we hold it nobody else writes it: our own last version is enough, and a 409 says otherwise.
    if (!this.isLeader()) {
      const found = await client.get(LEASES, { namespace, name }, call)
      if (!found) {
        const sentMs = clock.monotonicMs()
        const metadata = { name, namespace }
        this.#hold(await client.create(LEASES, namespace, { metadata, spec: this.#record(undefined) }, call), sentMs)
        return true
      }
      this.#see(found)
      const { holder, durationMs } = specOf(found)
      const free = !holder || holder === this.#identity || clock.monotonicMs() - this.#seenSinceMs >= durationMs
      if (!free) return false
    }
    const sentMs = clock.monotonicMs()
    try {
      this.#hold(await client.replace(LEASES, { namespace, name }, this.#body(this.#record(this.#seen)), call), sentMs)
      return true
    } catch (error) {
      if (!(error instanceof KubeError) || error.status !== 409) throw error
      // Somebody wrote it. An answer of our own that got lost looks the same, so look who.
      const found = await client.get(LEASES, { namespace, name }, call)
      if (found) this.#see(found)
      if (found && specOf(found).holder === this.#identity && this.isLeader()) return true
      this.#leaderUntilMs = Number.NEGATIVE_INFINITY
      return false
    }
  }

  #see(lease: KubeObject): void {
    if (lease.metadata.resourceVersion !== this.#seen?.metadata.resourceVersion)
      this.#seenSinceMs = this.#deps.clock.monotonicMs()
    this.#seen = lease
  }

  #hold(lease: KubeObject, sentMs: number): void {
    this.#see(lease)
    this.#leaderUntilMs = sentMs + RENEW_DEADLINE_MS
  }

  async #release(): Promise<void> {
    const { client, clock, log } = this.#deps
    const { namespace, name } = this.#options
    const spec = { ...this.#record(this.#seen), holderIdentity: '', leaseDurationSeconds: 1 }
    this.#leaderUntilMs = Number.NEGATIVE_INFINITY
    const deadline = AbortSignal.timeout(5_000)
    try {
      this.#seen = await client.replace(LEASES, { namespace, name }, this.#body(spec), {
        signal: deadline,
        urgent: true,
      })
      this.#seenSinceMs = clock.monotonicMs()
    } catch (error) {
      log.warn({ lease: name, error: messageOf(error) }, 'Lease not given free, it ends by itself')
    }
  }

  #body(spec: object): object {
    const { name, namespace } = this.#options
    const resourceVersion = this.#seen?.metadata.resourceVersion
    return { metadata: { name, namespace, ...(resourceVersion && { resourceVersion }) }, spec }
  }

  #record(before: KubeObject | undefined): Record<string, unknown> {
    const { holder, acquireTime, transitions } = specOf(before)
    const now = microTime(this.#deps.clock.now())
    const same = holder === this.#identity
    return {
      holderIdentity: this.#identity,
      leaseDurationSeconds: DURATION_S,
      acquireTime: same && acquireTime ? acquireTime : now,
      renewTime: now,
      leaseTransitions: before && !same ? transitions + 1 : transitions,
    }
  }
}

function specOf(lease: KubeObject | undefined) {
  const spec = isRecord(lease?.['spec']) ? lease['spec'] : {}
  const { holderIdentity, leaseDurationSeconds, acquireTime, leaseTransitions } = spec
  return {
    holder: typeof holderIdentity === 'string' && holderIdentity !== '' ? holderIdentity : undefined,
    durationMs: (typeof leaseDurationSeconds === 'number' ? leaseDurationSeconds : DURATION_S) * 1000,
    acquireTime: typeof acquireTime === 'string' ? acquireTime : undefined,
    transitions: typeof leaseTransitions === 'number' ? leaseTransitions : 0,
  }
}

/** The API's MicroTime has six digits, and refuses three. */
export function microTime(at: Date): string {
  return at.toISOString().replace('Z', '000Z')
}
