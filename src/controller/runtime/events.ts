import type { Clock } from '../../lib/clock.ts'
import { messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import type { KubeClient } from './kube-client.ts'
import { KubeError } from './kube-error.ts'
import { EVENTS } from './kube-object.ts'
import { microTime } from './lease.ts'

/** The object an event is about. */
export interface Regarding {
  readonly apiVersion: string
  readonly kind: string
  readonly name: string
  readonly namespace?: string
  readonly uid: string
}

export interface EventInput {
  readonly type: 'Normal' | 'Warning'
  readonly reason: string
  readonly note: string
  readonly action: string
}

export interface EventDeps {
  readonly client: Pick<KubeClient, 'create' | 'jsonPatch'>
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** Who reports: the controller's name and this process. */
export interface Reporter {
  readonly controller: string
  readonly instance: string
}

interface Sent {
  readonly namespace: string
  readonly name: string
  count: number
  lastSeenMs: number
  lastSentMs: number
}

const MINUTE_MS = 60_000
/** As long as an event is repeated within this time, it is the same event happening again. */
const SERIES_MS = 6 * MINUTE_MS
const LONGEST_NOTE = 1024
const LONGEST_BACKLOG = 1_000

/**
 * Records events (events.k8s.io/v1) in the background. The same object, reason and note again is counted on the first event, at
 * most once a minute; of warnings an object gets one new event per reason and minute. An event that cannot be written is lost.
 */
export class EventRecorder {
  readonly #deps: EventDeps
  readonly #reporter: Reporter
  readonly #sent = new Map<string, Sent>()
  readonly #warnedAtMs = new Map<string, number>()
  #tail: Promise<void> = Promise.resolve()
  #backlog = 0
  #sweptAtMs = 0

  constructor(deps: EventDeps, reporter: Reporter) {
    this.#deps = deps
    this.#reporter = reporter
  }

  /** Never throws, never waits. */
  record(regarding: Regarding, input: EventInput): void {
    const event = { ...input, note: shortened(input.note) }
    const nowMs = this.#deps.clock.monotonicMs()
    this.#sweep(nowMs)
    const key = [regarding.uid, event.type, event.reason, event.note].join('\n')
    const sent = this.#sent.get(key)
    if (sent && nowMs - sent.lastSeenMs < SERIES_MS) {
      sent.count += 1
      sent.lastSeenMs = nowMs
      if (nowMs - sent.lastSentMs < MINUTE_MS) return
      sent.lastSentMs = nowMs
      this.#enqueue(key, () => this.#repeat(sent))
      return
    }
    if (event.type === 'Warning') {
      const topic = `${regarding.uid}\n${event.reason}`
      if (nowMs - (this.#warnedAtMs.get(topic) ?? Number.NEGATIVE_INFINITY) < MINUTE_MS) return
      this.#warnedAtMs.set(topic, nowMs)
    }
    // Events about cluster-scoped objects live in this namespace, by rule of the API.
    const namespace = regarding.namespace ?? 'default'
    const name = `${regarding.name.slice(0, 200).replace(/[^a-z0-9]+$/, '')}.${this.#deps.random.bytes(8).toString('hex')}`
    this.#sent.set(key, { namespace, name, count: 1, lastSeenMs: nowMs, lastSentMs: nowMs })
    this.#enqueue(key, () => this.#create(namespace, name, regarding, event))
  }

  /** Resolves when all that was recorded so far has been written or given up. */
  settled(): Promise<void> {
    return this.#tail
  }

  async #create(namespace: string, name: string, regarding: Regarding, event: EventInput): Promise<void> {
    const { controller, instance } = this.#reporter
    const { client, clock } = this.#deps
    await client.create(
      EVENTS,
      namespace,
      {
        metadata: { name, namespace },
        eventTime: microTime(clock.now()),
        reportingController: controller,
        reportingInstance: instance.slice(0, 128),
        regarding,
        ...event,
      },
      { metadataOnly: true },
    )
  }

  async #repeat({ namespace, name, count }: Sent): Promise<void> {
    const series = { count, lastObservedTime: microTime(this.#deps.clock.now()) }
    await this.#deps.client.jsonPatch(EVENTS, { namespace, name }, [{ op: 'add', path: '/series', value: series }], {
      metadataOnly: true,
    })
  }

  #enqueue(key: string, write: () => Promise<void>): void {
    if (this.#backlog >= LONGEST_BACKLOG) return
    this.#backlog += 1
    this.#tail = this.#tail
      .then(write)
      .catch((error: unknown) => {
        // The next occurrence begins a new event: this one may have expired (404), or was never written.
        this.#sent.delete(key)
        const status = error instanceof KubeError ? error.status : undefined
        this.#deps.log.debug({ status, error: messageOf(error) }, 'event not written')
      })
      .finally(() => {
        this.#backlog -= 1
      })
  }

  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptAtMs < MINUTE_MS) return
    this.#sweptAtMs = nowMs
    for (const [key, sent] of this.#sent) if (nowMs - sent.lastSeenMs >= SERIES_MS) this.#sent.delete(key)
    for (const [topic, atMs] of this.#warnedAtMs) if (nowMs - atMs >= MINUTE_MS) this.#warnedAtMs.delete(topic)
  }
}

/** The server refuses notes over 1024 bytes; cut without splitting a character. */
function shortened(note: string): string {
  if (Buffer.byteLength(note) <= LONGEST_NOTE) return note
  const cut = Buffer.from(note).subarray(0, LONGEST_NOTE - 3)
  return `${cut.toString('utf8').replace(/\uFFFD+$/, '')}…`
}
