import type { Clock } from '../../lib/clock.ts'
import { AppError } from '../../lib/errors.ts'
import type { Random } from '../../lib/random.ts'
import type { KubeEndpoint } from './endpoint.ts'
import { Gate } from './gate.ts'
import { errorOfStatus, isRecord, KubeError } from './kube-error.ts'
import {
  apiVersionOf,
  collectionPath,
  type KubeObject,
  type Namespaces,
  type ObjectRef,
  objectPath,
  type ResourceType,
} from './kube-object.ts'
import { KubeTransport, type Lane } from './kube-transport.ts'
import { readLines } from './lines.ts'

/**
 * The Kubernetes door: a small client of the API server for a process that lives for months.
 *
 * Invariants: every call has a deadline; connections are reused; at most 16 calls are under way, Lease renewals apart from them;
 * only what may be repeated is repeated (a 409 never is); a write of who may not write any more is not sent, however long it has
 * waited or been repeated; a namespaced collection is never read without saying which namespace.
 * It leaves caching to `informer.ts`, what to do about an error to its callers, and knows no kind but by its path.
 */

export interface CallOptions {
  readonly signal?: AbortSignal
  /** Only metadata travels back: of a Secret, no value. */
  readonly metadataOnly?: boolean
  /** A way of its own past every queue, for Lease renewals. */
  readonly urgent?: boolean
}

export interface ListOptions extends CallOptions {
  readonly labelSelector?: string | undefined
  readonly fieldSelector?: string | undefined
  /** The state at exactly this version; 410 when the server has forgotten it. */
  readonly exactVersion?: string
}

export interface WatchOptions extends Omit<ListOptions, 'exactVersion' | 'urgent'> {
  /** Where to go on; absent: the state comes first, and a bookmark that ends it. */
  readonly resourceVersion?: string
  readonly timeoutSeconds: number
  /** Called for every piece that arrives, even within a line. */
  readonly onBytes?: () => void
}

export interface ApplyOptions extends CallOptions {
  readonly manager: string
  readonly force?: boolean
  readonly subresource?: 'status'
}

export type WatchEvent =
  | { readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'; readonly object: KubeObject }
  | { readonly type: 'BOOKMARK'; readonly resourceVersion: string; readonly endsState: boolean }

/** One page of a list; all pages of one list share a resource version. */
export interface ListPage {
  readonly items: readonly KubeObject[]
  readonly resourceVersion: string
}

export interface JsonPatchOperation {
  readonly op: 'add' | 'remove' | 'replace' | 'test'
  readonly path: string
  readonly value?: unknown
}

const CALL_TIMEOUT_MS = 10_000
const LIST_TIMEOUT_MS = 60_000
const PAGE_SIZE = 500
const IN_FLIGHT = 16
const TRIES = 4
const STATE_END = 'k8s.io/initial-events-end'
const METADATA = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1'
const METADATA_LIST = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1'

interface Call extends CallOptions {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly body?: unknown
  readonly contentType?: string
  readonly accept?: string
  readonly timeoutMs?: number
  /** Repeating it after an unknown outcome does no harm. */
  readonly repeatable: boolean
}

export interface KubeClientDeps {
  readonly clock: Clock
  readonly random: Random
  /** Asked in the moment in which a write goes out; `urgent` calls are not asked about. */
  readonly mayWrite?: () => boolean
}

export class KubeClient {
  readonly #transport: KubeTransport
  readonly #clock: Clock
  readonly #random: Random
  readonly #gate = new Gate(IN_FLIGHT)
  // One repetition is earned by ten calls, so that a server in trouble is not sent a multiple of the usual load.
  #repeatsLeft = 10

  constructor(endpoint: KubeEndpoint, { clock, random, mayWrite = () => true }: KubeClientDeps) {
    this.#transport = new KubeTransport(endpoint, { clock, mayWrite })
    this.#clock = clock
    this.#random = random
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#transport[Symbol.asyncDispose]()
  }

  /** `undefined`: no such object. */
  async get(type: ResourceType, ref: ObjectRef, options: CallOptions = {}): Promise<KubeObject | undefined> {
    try {
      const call = { ...options, method: 'GET', path: objectPath(type, ref), repeatable: true } as const
      return (await this.#object(call)).object
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined
      throw error
    }
  }

  /** A list page by page. A 410 in the middle means: begin anew. */
  async *pages(type: ResourceType, namespace: Namespaces, options: ListOptions = {}): AsyncGenerator<ListPage> {
    let next: string | undefined
    do {
      const query = selectors(options)
      query.set('limit', String(PAGE_SIZE))
      if (next) query.set('continue', next)
      else if (options.exactVersion) {
        query.set('resourceVersion', options.exactVersion)
        query.set('resourceVersionMatch', 'Exact')
      }
      const { body } = await this.#call({
        ...options,
        method: 'GET',
        path: `${collectionPath(type, namespace)}?${query}`,
        accept: options.metadataOnly ? METADATA_LIST : 'application/json',
        timeoutMs: LIST_TIMEOUT_MS,
        repeatable: true,
      })
      const list = isRecord(body) && isRecord(body['metadata']) ? body['metadata'] : {}
      const items = isRecord(body) && Array.isArray(body['items']) ? body['items'] : []
      next = typeof list['continue'] === 'string' && list['continue'] !== '' ? list['continue'] : undefined
      yield { items: items.filter(isObject), resourceVersion: String(list['resourceVersion'] ?? '') }
    } while (next)
  }

  async list(type: ResourceType, namespace: Namespaces, options: ListOptions = {}): Promise<KubeObject[]> {
    const all: KubeObject[] = []
    for await (const page of this.pages(type, namespace, options)) all.push(...page.items)
    return all
  }

  /** Server-side apply. Status 201 says that the object was created. A body with `metadata.uid`, or a subresource, creates nothing and may be repeated. */
  async apply(
    type: ResourceType,
    ref: ObjectRef,
    body: object,
    options: ApplyOptions,
  ): Promise<{ readonly status: number; readonly object: KubeObject }> {
    const query = new URLSearchParams({ fieldManager: options.manager })
    if (options.force) query.set('force', 'true')
    const metadata = 'metadata' in body && isRecord(body.metadata) ? body.metadata : {}
    return this.#object({
      ...options,
      method: 'PATCH',
      path: `${objectPath(type, ref, options.subresource)}?${query}`,
      contentType: 'application/apply-patch+yaml',
      body: { apiVersion: apiVersionOf(type), kind: type.kind, ...body },
      repeatable: typeof metadata['uid'] === 'string' || options.subresource !== undefined,
    })
  }

  /** Every patch that must not be lost or doubled begins with a `test`; a failed test is a 422. */
  async jsonPatch(
    type: ResourceType,
    ref: ObjectRef,
    operations: readonly JsonPatchOperation[],
    options: CallOptions = {},
  ): Promise<KubeObject> {
    const path = objectPath(type, ref)
    const contentType = 'application/json-patch+json'
    const repeatable = operations[0]?.op === 'test'
    return (await this.#object({ ...options, method: 'PATCH', path, contentType, body: operations, repeatable })).object
  }

  async create(
    type: ResourceType,
    namespace: string | undefined,
    body: object,
    options: CallOptions = {},
  ): Promise<KubeObject> {
    const whole = { apiVersion: apiVersionOf(type), kind: type.kind, ...body }
    const path = collectionPath(type, namespace)
    return (await this.#object({ ...options, method: 'POST', path, body: whole, repeatable: false })).object
  }

  /** Replaces the whole object; with `metadata.resourceVersion` in the body a 409 says that somebody was faster. */
  async replace(type: ResourceType, ref: ObjectRef, body: object, options: CallOptions = {}): Promise<KubeObject> {
    const whole = { apiVersion: apiVersionOf(type), kind: type.kind, ...body }
    return (
      await this.#object({ ...options, method: 'PUT', path: objectPath(type, ref), body: whole, repeatable: false })
    ).object
  }

  /** False when it was not there any more, or there under another uid. */
  async delete(type: ResourceType, ref: ObjectRef, options: CallOptions & { readonly uid: string }): Promise<boolean> {
    const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid: options.uid } }
    try {
      await this.#call({ ...options, method: 'DELETE', path: objectPath(type, ref), body, repeatable: true })
      return true
    } catch (error) {
      if (error instanceof KubeError && (error.status === 404 || error.status === 409)) return false
      throw error
    }
  }

  /**
   * Events from `resourceVersion` on, until the server ends the watch (then the iterator ends) or it breaks (then it throws).
   * A version from which the server cannot go on throws a `KubeError` with `isExpired`, whichever way the server says it. Ends at
   * once when `signal` aborts.
   */
  async *watch(type: ResourceType, namespace: Namespaces, options: WatchOptions): AsyncGenerator<WatchEvent> {
    const query = selectors(options)
    query.set('watch', 'true')
    query.set('allowWatchBookmarks', 'true')
    if (options.resourceVersion !== undefined) query.set('resourceVersion', options.resourceVersion)
    else {
      query.set('sendInitialEvents', 'true')
      query.set('resourceVersionMatch', 'NotOlderThan')
    }
    query.set('timeoutSeconds', String(options.timeoutSeconds))
    const what = `watch ${type.plural}`
    const answer = await this.#send('watch', what, {
      method: 'GET',
      path: `${collectionPath(type, namespace)}?${query}`,
      accept: options.metadataOnly ? METADATA : 'application/json',
      ...(options.signal && { signal: options.signal }),
      repeatable: false,
    })
    if (answer.statusCode !== 200) throw errorOfStatus(what, answer.statusCode, parse(await answer.body.text()))
    options.onBytes?.()
    for await (const line of readLines(answer.body, options.onBytes)) yield eventOf(what, line)
  }

  async #object(call: Call): Promise<{ status: number; object: KubeObject }> {
    const accept = call.metadataOnly ? METADATA : 'application/json'
    const { status, body } = await this.#call({ accept, ...call })
    if (!isObject(body)) throw new KubeError(`${call.method} ${call.path}`, { status, text: 'the answer is no object' })
    return { status, object: body }
  }

  #call(call: Call): Promise<{ status: number; body: unknown }> {
    return call.urgent ? this.#attempts(call) : this.#gate.run(() => this.#attempts(call))
  }

  async #attempts(call: Call): Promise<{ status: number; body: unknown }> {
    this.#repeatsLeft = Math.min(10, this.#repeatsLeft + 0.1)
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(call)
      } catch (error) {
        if (!(error instanceof KubeError) || attempt >= TRIES || call.urgent || call.signal?.aborted) throw error
        // The server sends 429 before it has looked at the request, so anything may be repeated then.
        const again = error.status === 429 || (call.repeatable && (error.status === 0 || error.status >= 500))
        if (!again || this.#repeatsLeft < 1) throw error
        this.#repeatsLeft -= 1
        const jitterMs = this.#random.integer(Math.min(30_000, 250 * 2 ** attempt) + 1)
        await this.#clock.sleep(Math.min(30_000, (error.retryAfterMs ?? 0) + jitterMs), call.signal)
      }
    }
  }

  async #once(call: Call): Promise<{ status: number; body: unknown }> {
    const what = `${call.method} ${call.path.replace(/\?.*/, '')}`
    const late = new AbortController()
    const done = new AbortController()
    const deadline = this.#clock.sleep(call.timeoutMs ?? CALL_TIMEOUT_MS, done.signal).then(
      () => late.abort(new Error('no answer in time')),
      () => undefined,
    )
    try {
      return await this.#exchange(what, call, AbortSignal.any([late.signal, ...(call.signal ? [call.signal] : [])]))
    } finally {
      done.abort()
      await deadline
    }
  }

  async #exchange(what: string, call: Call, signal: AbortSignal): Promise<{ status: number; body: unknown }> {
    const answer = await this.#send(call.urgent ? 'urgent' : 'calls', what, { ...call, signal })
    let text: string
    try {
      text = await answer.body.text()
    } catch (error) {
      throw new KubeError(what, { status: 0, text: 'the answer broke off' }, error)
    }
    const body = parse(text)
    if (answer.statusCode < 300) return { status: answer.statusCode, body }
    const retryAfter = answer.headers['retry-after']
    throw errorOfStatus(what, answer.statusCode, body, typeof retryAfter === 'string' ? retryAfter : undefined)
  }

  async #send(lane: Lane, what: string, call: Omit<Call, 'urgent'>) {
    try {
      return await this.#transport.send({
        lane,
        method: call.method,
        path: call.path,
        headers: {
          accept: call.accept ?? 'application/json',
          'user-agent': 'keyturn-controller',
          ...(call.body !== undefined && { 'content-type': call.contentType ?? 'application/json' }),
        },
        ...(call.body !== undefined && { body: JSON.stringify(call.body) }),
        ...(call.signal && { signal: call.signal }),
      })
    } catch (error) {
      if (error instanceof AppError) throw error
      throw new KubeError(what, { status: 0, text: 'the API server does not answer' }, error)
    }
  }
}

function selectors({ labelSelector, fieldSelector }: ListOptions | WatchOptions): URLSearchParams {
  return new URLSearchParams({ ...(labelSelector && { labelSelector }), ...(fieldSelector && { fieldSelector }) })
}

function eventOf(what: string, line: string): WatchEvent {
  const event = parse(line)
  if (!isRecord(event)) throw new KubeError(what, { status: 0, text: 'a line of the watch is not JSON' })
  const { type, object } = event
  if (type === 'ERROR') throw errorOfStatus(what, 500, object)
  if (!isObject(object)) throw new KubeError(what, { status: 0, text: 'an event of the watch holds no object' })
  if (type === 'BOOKMARK') {
    const { resourceVersion = '', annotations = {} } = object.metadata
    return { type, resourceVersion, endsState: annotations[STATE_END] === 'true' }
  }
  if (type === 'ADDED' || type === 'MODIFIED' || type === 'DELETED') return { type, object }
  throw new KubeError(what, { status: 0, text: 'an event of the watch has an unknown type' })
}

function isObject(value: unknown): value is KubeObject {
  return isRecord(value) && isRecord(value['metadata'])
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
