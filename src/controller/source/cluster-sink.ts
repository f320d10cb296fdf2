import { notFound } from '../../lib/errors.ts'
import { EventRecorder, type Reporter } from '../runtime/events.ts'
import { addFinalizer, removeFinalizer } from '../runtime/finalizer.ts'
import { apiVersionOf, keyOf, type ResourceType } from '../runtime/kube-object.ts'
import { SecretWriter } from '../runtime/secret-writer.ts'
import { applyStatus, sameJson } from '../runtime/status.ts'
import { type ClusterDeps, ClusterSource, type ClusterSourceOptions } from './cluster.ts'
import { OwnWrites } from './own-writes.ts'
import type { EventNote, NamespacedName, Resource, SecretWriteRequest, SecretWriteResult, Sink } from './source.ts'

export interface ClusterOptions extends ClusterSourceOptions {
  /** Field managers of the two other things we write to objects of ours. */
  readonly statusManager: string
  readonly finalizerManager: string
  /** The label of output Secrets that holds the uid of their resource. */
  readonly ownerLabel: string
  readonly reporter: Reporter
}

/** The cluster as a Source and a Sink that know of each other's writes. */
export function clusterPair(
  options: ClusterOptions,
  deps: Omit<ClusterDeps, 'writes'>,
): { readonly source: ClusterSource; readonly sink: ClusterSink } {
  const writes = new OwnWrites()
  const source = new ClusterSource(options, { ...deps, writes })
  return { source, sink: new ClusterSink(options, source, { ...deps, writes }) }
}

/** Results into the cluster, all by server-side apply: one manager each for Secrets, status and finalizers. */
export class ClusterSink implements Sink {
  readonly #options: ClusterOptions
  readonly #deps: ClusterDeps
  readonly #secrets: SecretWriter
  readonly #events: EventRecorder
  readonly #source: Pick<ClusterSource, 'get'>

  constructor(options: ClusterOptions, source: Pick<ClusterSource, 'get'>, deps: ClusterDeps) {
    this.#options = options
    this.#source = source
    this.#deps = deps
    this.#secrets = new SecretWriter(deps.client, { manager: options.secretManager, ownerLabel: options.ownerLabel })
    this.#events = new EventRecorder(deps, options.reporter)
  }

  async applySecret(request: SecretWriteRequest): Promise<SecretWriteResult> {
    return this.#deps.writes.during<SecretWriteResult>(keyOf(request), async () => {
      const result = await this.#secrets.apply(request)
      if (result.result !== 'written') return { result, after: undefined }
      const { labels, annotations, ownerReference } = request
      const owners = ownerReference ? [ownerReference.uid] : []
      const meta = { uid: result.uid, labels, annotations, managedKeys: [...request.data.keys()], owners }
      return { result, after: { resourceVersion: result.resourceVersion, meta } }
    })
  }

  async deleteSecret(ref: NamespacedName, uid: string, mode: 'Create' | 'Merge' = 'Create'): Promise<void> {
    await this.#deps.writes.during(keyOf(ref), async () => {
      await this.#secrets.remove(ref, uid, mode)
      return { result: undefined, after: undefined }
    })
  }

  async writeStatus(resource: Resource, status: unknown): Promise<void> {
    const { uid } = resource.metadata
    // The source knows our last write even before the watch brings it; the resource in hand may be from before.
    const seen = this.#source.get({ kind: resource.kind, ...named(resource) })
    const before = seen?.metadata.uid === uid ? seen.status : resource.status
    if (sameJson(status, before ?? {})) return
    const type = this.#typeOf(resource.kind)
    const done = await applyStatus(this.#deps.client, type, resource.metadata, status, this.#options.statusManager)
    if (done) this.#deps.writes.noteStatus(uid, done.resourceVersion, status)
  }

  async addFinalizer(resource: Resource, name: string): Promise<void> {
    if (resource.metadata.finalizers.includes(name)) return
    const { client } = this.#deps
    await addFinalizer(client, this.#typeOf(resource.kind), resource.metadata, name, this.#options.finalizerManager)
  }

  async removeFinalizer(resource: Resource, name: string): Promise<void> {
    await removeFinalizer(this.#deps.client, this.#typeOf(resource.kind), resource.metadata, name)
    this.#deps.writes.forgetStatus(resource.metadata.uid)
  }

  event(resource: Resource, event: EventNote): void {
    const apiVersion = apiVersionOf(this.#typeOf(resource.kind))
    const { uid } = resource.metadata
    this.#events.record({ apiVersion, kind: resource.kind, uid, ...named(resource) }, event)
  }

  /** Resolves when the events recorded so far are written. */
  settled(): Promise<void> {
    return this.#events.settled()
  }

  #typeOf(kind: string): ResourceType {
    const type = this.#options.types.find((known) => known.kind === kind)
    if (!type) throw notFound(`kind ${kind} is unknown`)
    return type
  }
}

function named({ metadata: { name, namespace } }: Resource): { name: string; namespace?: string } {
  return { name, ...(namespace && { namespace }) }
}
