import type { Clock } from '../../lib/clock.ts'
import { AppError, messageOf, unavailable, unsupported } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import type { KubeClient } from './kube-client.ts'
import { KubeError } from './kube-error.ts'
import { compareVersions, type KubeObject, keyOf, type Namespaces, type ResourceType } from './kube-object.ts'
import { type Change, type Indexer, ObjectStore } from './store.ts'

/**
 * Keeps the objects of one resource in memory and tells what changes.
 *
 *     STATE → WATCH ── ended politely, or broken, or silent for 90 s ──→ WATCH from the last version
 *       ↑        └─── version expired (410), or unknown after a restore ──→ STATE, told as differences, deletions too
 *       └──── resource not installed (404): look again each minute; anything else: with back-off, for ever
 *
 * The state comes as the first events of a watch, or page by page from a server that cannot tell it so.
 * Invariants: it never stops before its signal aborts; listeners hear every difference once and in order; a half-open
 * connection is noticed by its silence, since the server sends a bookmark each minute. Every 30 minutes, and after a silence,
 * the state is compared with the server's at exactly our version: what differs then is an event that was missed, which is
 * counted and repaired. Listeners only enqueue keys; one that throws is logged.
 */
export interface InformerOptions {
  readonly type: ResourceType
  readonly namespace: Namespaces
  readonly labelSelector?: string
  readonly fieldSelector?: string
  readonly metadataOnly?: boolean
  /** What is kept of an object; by default everything but what nobody reads (`stripped`). */
  readonly transform?: (object: KubeObject) => KubeObject
  readonly indexes?: Readonly<Record<string, Indexer>>
}

export interface InformerDeps {
  readonly client: KubeClient
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** `missing`: the server knows no such resource; its store is empty. `failing`: out of touch, the store is what was last seen. */
export type InformerState = 'starting' | 'synced' | 'missing' | 'failing'

const SILENCE_MS = 90_000
/** A server that has not told the whole state by then is asked for pages instead. */
const STATE_MS = 60_000
const HEALTHY_MS = 60_000
const MISSING_RETRY_MS = 60_000
const RELIST_MS = 30 * 60_000

export class Informer {
  readonly type: ResourceType
  readonly store: ObjectStore
  readonly #options: InformerOptions
  readonly #deps: InformerDeps
  readonly #listeners: ((change: Change) => void)[] = []
  readonly #synced = Promise.withResolvers<void>()
  #state: InformerState = 'starting'
  /** Where the watch goes on; undefined: a list is needed first. */
  #version: string | undefined
  /** Whether the server can begin a watch with the state; true until it proves otherwise. */
  #streams = true
  /** The last watch ended by an expired version, and nothing was heard since. */
  #hasExpired = false
  #lastByteMs = 0
  #heardMs = 0
  #relistAtMs = 0
  #failures = 0
  missedEvents = 0
  relists = 0

  constructor(options: InformerOptions, deps: InformerDeps) {
    this.type = options.type
    this.store = new ObjectStore(options.indexes)
    this.#options = options
    this.#deps = deps
  }

  get state(): InformerState {
    return this.#state
  }

  /** True once the store has been filled, or the resource is known not to be installed. */
  get hasSynced(): boolean {
    return this.#version !== undefined || this.#state !== 'starting'
  }

  /** Resolves when `hasSynced`; never, if the server never answers: race it with a signal. */
  get synced(): Promise<void> {
    return this.#synced.promise
  }

  /** How long ago the server said something that could be used: a refusal is as good as silence. Grows without end when out of touch. */
  get silentMs(): number {
    return this.#now() - this.#heardMs
  }

  /** Must be called before `run`, so that no change is missed. */
  onChange(listener: (change: Change) => void): void {
    this.#listeners.push(listener)
  }

  /** Works until `signal` aborts; never throws. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const startedMs = this.#now()
      let waitMs = 0
      try {
        const isListDue = this.#version === undefined ? !this.#streams : this.#now() >= this.#relistAtMs
        if (isListDue) await this.#list(signal)
        await this.#watch(signal)
        // The server ends watches politely after minutes. One that ends at once, again and again, is as bad as broken.
        const isTooShort = this.#version !== undefined && this.#now() - startedMs < 5_000
        waitMs = isTooShort ? this.#backoff(startedMs) : 0
      } catch (error) {
        if (signal.aborted) return
        waitMs = this.#failed(error, startedMs)
      }
      if (waitMs > 0) await this.#deps.clock.sleep(waitMs, signal).catch(() => undefined)
    }
  }

  #now(): number {
    return this.#deps.clock.monotonicMs()
  }

  #failed(error: unknown, startedMs: number): number {
    const { log } = this.#deps
    const resource = this.type.plural
    if (error instanceof KubeError && error.isExpired) {
      log.debug({ resource }, 'watch version expired, listing anew')
      this.#version = undefined
      // Told by a server that is well again, so that it can be asked at once; but not by one of which that is the only answer.
      if (!this.#hasExpired) {
        this.#hasExpired = true
        return 0
      }
      return this.#backoff(startedMs)
    }
    if (error instanceof KubeError && error.status === 404) {
      if (this.#state !== 'missing') log.warn({ resource }, 'resource is not installed, looking again each minute')
      this.#version = undefined
      this.#state = 'missing'
      this.#heardMs = this.#now()
      for (const [key, { metadata }] of [...this.store.entries()])
        this.#tell(this.store.remove(key, metadata.resourceVersion))
      this.#synced.resolve()
      return MISSING_RETRY_MS
    }
    if (this.hasSynced && this.#state === 'synced') this.#state = 'failing'
    const waitMs = this.#backoff(startedMs)
    log.warn({ resource, error: messageOf(error), waitMs }, 'watch broke, connecting anew')
    return waitMs
  }

  /** Full jitter between 0.8 s and 30 s; a minute of health forgives all earlier failures. */
  #backoff(startedMs: number): number {
    if (this.#now() - startedMs >= HEALTHY_MS) this.#failures = 0
    this.#failures += 1
    const limitMs = Math.min(30_000, 800 * 2 ** Math.min(this.#failures, 10))
    return 800 + this.#deps.random.integer(limitMs - 800 + 1)
  }

  async #list(signal: AbortSignal): Promise<void> {
    // Compared at exactly the version that the watch has reached, a difference can only be a missed event.
    const at = this.#version
    try {
      await this.#listAt(signal, at)
    } catch (error) {
      if (at === undefined || !(error instanceof KubeError) || !(error.isExpired || error.kind === 'invalid'))
        throw error
      await this.#listAt(signal, undefined)
    }
  }

  async #listAt(signal: AbortSignal, exactVersion: string | undefined): Promise<void> {
    const { type, namespace, labelSelector, fieldSelector, metadataOnly = false } = this.#options
    const found = new Map<string, KubeObject>()
    let version = ''
    const options = { signal, labelSelector, fieldSelector, metadataOnly, ...(exactVersion && { exactVersion }) }
    for await (const page of this.#deps.client.pages(type, namespace, options)) {
      this.#heardMs = this.#now()
      version = page.resourceVersion
      for (const item of page.items) found.set(keyOf(item.metadata), this.#kept(item))
    }
    const differences = this.store.replace(found, version)
    if (exactVersion) {
      this.missedEvents += differences.length
      if (differences.length > 0)
        this.#deps.log.error({ resource: type.plural, missed: differences.length }, 'events of a watch were missed')
      for (const change of differences) this.#tell(change)
    } else this.#hasState(differences, version)
    this.#isCurrent()
  }

  #hasState(differences: readonly Change[], version: string): void {
    this.relists += 1
    this.#version = version
    for (const change of differences) this.#tell(change)
  }

  #isCurrent(): void {
    this.#relistAtMs = this.#now() + RELIST_MS * (0.8 + this.#deps.random.integer(401) / 1000)
    this.#state = 'synced'
    this.#synced.resolve()
  }

  /** From where the last one ended; where nothing is known yet, from the state itself. */
  async #watch(signal: AbortSignal): Promise<void> {
    const { client, clock, random } = this.#deps
    const { type, namespace, labelSelector, fieldSelector, metadataOnly = false } = this.#options
    const startedMs = this.#now()
    let state = this.#version === undefined ? new Map<string, KubeObject>() : undefined
    const ended = new AbortController()
    const either = AbortSignal.any([signal, ended.signal])
    // Armed before the request: a server that never answers it is silent too.
    const silence = this.#endOnSilence(clock, ended)
    try {
      const events = client.watch(type, namespace, {
        ...(this.#version !== undefined && { resourceVersion: this.#version }),
        timeoutSeconds: 300 + random.integer(301),
        signal: either,
        labelSelector,
        fieldSelector,
        metadataOnly,
        onBytes: () => {
          this.#lastByteMs = this.#now()
        },
      })
      for await (const event of events) {
        this.#heardMs = this.#now()
        if (!state) {
          this.#state = 'synced'
          this.#hasExpired = false
          if (event.type === 'BOOKMARK') this.#advance(event.resourceVersion)
          else this.#received(event.type, event.object)
          if (this.#now() >= this.#relistAtMs) return
        } else if (event.type !== 'BOOKMARK') {
          const key = keyOf(event.object.metadata)
          if (event.type === 'DELETED') state.delete(key)
          else state.set(key, this.#kept(event.object))
        } else if (event.endsState) {
          this.#hasState(this.store.replace(state, event.resourceVersion), event.resourceVersion)
          state = undefined
          this.#isCurrent()
        } else throw unsupported('the server begins a watch without its state')
      }
      if (state) throw unavailable('the watch ended before the state was told')
    } catch (error) {
      if (!state || signal.aborted || !(isRefusal(error) || this.#now() - startedMs >= STATE_MS)) throw error
      this.#deps.log.debug({ resource: type.plural, error: messageOf(error) }, 'no state by watching, listing instead')
      this.#streams = false
    } finally {
      ended.abort(new Error('the watch is over'))
      await silence
    }
  }

  async #endOnSilence(clock: Clock, ended: AbortController): Promise<void> {
    const armedMs = this.#now()
    try {
      for (let leftMs = SILENCE_MS; leftMs > 0; ) {
        await clock.sleep(leftMs, ended.signal)
        leftMs = SILENCE_MS - (this.#now() - Math.max(armedMs, this.#lastByteMs))
      }
      // It may wait for a version that it will not have for long, after a restore: the state is compared before we go on.
      this.#relistAtMs = this.#now()
      ended.abort(new Error(`no byte came for ${SILENCE_MS / 1000} s`))
    } catch {
      // The watch ended by itself.
    }
  }

  #received(type: 'ADDED' | 'MODIFIED' | 'DELETED', raw: KubeObject): void {
    const object = this.#kept(raw)
    const key = keyOf(object.metadata)
    const version = object.metadata.resourceVersion
    if (type === 'DELETED') this.#tell(this.store.remove(key, version))
    else {
      const known = this.store.get(key)
      if (known && known.metadata.uid !== object.metadata.uid) this.#tell(this.store.remove(key, version))
      this.#tell(this.store.put(object))
    }
    // After the listeners: whatever breaks here is heard again, never lost.
    this.#advance(version)
  }

  #advance(version: string | undefined): void {
    if (version && compareVersions(version, this.#version) > 0) this.#version = version
  }

  #kept(object: KubeObject): KubeObject {
    return (this.#options.transform ?? stripped)(object)
  }

  #tell(change: Change | undefined): void {
    if (!change) return
    for (const listener of this.#listeners) {
      try {
        listener(change)
      } catch (error) {
        this.#deps.log.error(
          { resource: this.type.plural, key: change.key, error: messageOf(error) },
          'a listener failed',
        )
      }
    }
  }
}

/** The server said that it cannot, and will say so again. */
function isRefusal(error: unknown): boolean {
  return error instanceof AppError && (error.kind === 'invalid' || error.kind === 'unsupported')
}

const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

/** The object without the two parts that are large and that no reconciler reads. */
export function stripped(object: KubeObject): KubeObject {
  const { managedFields: _, annotations, ...metadata } = object.metadata
  if (!annotations) return { ...object, metadata }
  const { [LAST_APPLIED]: __, ...rest } = annotations
  return { ...object, metadata: { ...metadata, annotations: rest } }
}
