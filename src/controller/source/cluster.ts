import type { Clock } from '../../lib/clock.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'
import { Informer, type InformerOptions, stripped } from '../runtime/informer.ts'
import type { KubeClient } from '../runtime/kube-client.ts'
import { isRecord } from '../runtime/kube-error.ts'
import {
  allNamespaces,
  CONFIG_MAPS,
  type KubeObject,
  keyOf,
  NAMESPACES,
  type ResourceType,
  SECRETS,
} from '../runtime/kube-object.ts'
import { managedKeysOf } from '../runtime/secret-writer.ts'
import { sameJson } from '../runtime/status.ts'
import type { Change } from '../runtime/store.ts'
import type { OwnWrites } from './own-writes.ts'
import type { KeyRef, NamespacedName, OutputSecretMeta, Resource, ResourceRef, Source } from './source.ts'

export interface ClusterSourceOptions {
  /** Every kind that may be asked for. */
  readonly types: readonly ResourceType[]
  /** Namespaces that are watched; absent: all, which needs rights on all. */
  readonly namespaces?: readonly string[]
  /** Namespaces in which we may touch Secrets, where those are fewer. */
  readonly secretNamespaces?: readonly string[]
  /** Where Secrets and ConfigMaps of cluster-scoped kinds live; changes there are reported. */
  readonly centralNamespace: string
  /** The label with the value `true` on every Secret that we write; only those are followed. */
  readonly managedLabel: string
  /** The field manager of output Secrets. */
  readonly secretManager: string
  readonly resyncMs?: number
}

export interface ClusterDeps {
  readonly client: KubeClient
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly writes: OwnWrites
}

type OnChange = (ref: ResourceRef, why: 'user' | 'resync') => void

const RESYNC_MS = 10 * 3_600_000
const READY_SILENCE_MS = 180_000

/**
 * Resources from a cluster: one informer a kind (and namespace, where only some are watched), metadata alone of Secrets and
 * namespaces. A change of nothing but status is not reported: those are our own writes, and the slow resync looks at them.
 */
export class ClusterSource implements Source {
  readonly #options: ClusterSourceOptions
  readonly #deps: ClusterDeps
  readonly #kinds = new Map<string, Informer[]>()
  #secrets: Informer[] = []
  #namespaces: Informer | undefined
  #running: Promise<unknown> = Promise.resolve()

  constructor(options: ClusterSourceOptions, deps: ClusterDeps) {
    this.#options = options
    this.#deps = deps
  }

  /** For readiness and metrics. */
  get informers(): readonly Informer[] {
    return [...[...this.#kinds.values()].flat(), ...this.#secrets, ...(this.#namespaces ? [this.#namespaces] : [])]
  }

  /** True while everything is known and the server has been heard in the last three minutes. */
  isReady(): boolean {
    const { informers } = this
    // None are there before the start: nothing is known then.
    return informers.length > 0 && informers.every((i) => i.hasSynced && i.silentMs < READY_SILENCE_MS)
  }

  /** Resolves when, after the signal given to `start` has aborted, nothing runs any more. */
  async stopped(): Promise<void> {
    await this.#running
  }

  async start(kinds: readonly string[], onChange: OnChange, signal: AbortSignal): Promise<void> {
    for (const kind of kinds) {
      const type = this.#options.types.find((known) => known.kind === kind)
      if (!type) throw new Error(`kind ${kind} is unknown to the cluster source`)
      const informers = this.#spread(type).map((namespace) => this.#informer({ type, namespace }))
      for (const informer of informers) {
        informer.onChange(({ type, object }) => {
          if (type === 'deleted' && object.metadata.uid) this.#deps.writes.forgetStatus(object.metadata.uid)
        })
        reportKind(informer, onChange)
      }
      this.#kinds.set(kind, informers)
    }
    const secretNamespaces = this.#options.secretNamespaces ?? this.#spread(SECRETS)
    this.#secrets = secretNamespaces.map((namespace) => this.#outputSecrets(namespace, onChange))
    if (!this.#options.namespaces) {
      this.#namespaces = this.#informer({ type: NAMESPACES, namespace: allNamespaces, metadataOnly: true })
      this.#namespaces.onChange(({ type, object, old }) => {
        const same = old && object.metadata.deletionTimestamp === old.metadata.deletionTimestamp
        if (type === 'updated' && same && sameJson(object.metadata.labels, old.metadata.labels)) return
        onChange({ kind: 'Namespace', name: object.metadata.name }, 'user')
      })
    }
    const central = [SECRETS, CONFIG_MAPS].map((type) => this.#central(type, onChange))
    const all = [...this.informers, ...central]
    this.#running = Promise.all([...all.map((informer) => informer.run(signal)), this.#resync(onChange, signal)])
    const aborted = new Promise<never>((_, reject) => {
      if (signal.aborted) reject(signal.reason)
      else signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    })
    // The central namespace may be out of reach without anything else suffering: its objects are read when needed.
    await Promise.race([Promise.all(this.informers.map((informer) => informer.synced)), aborted])
  }

  get(ref: ResourceRef): Resource | undefined {
    const key = keyOf(ref)
    for (const informer of this.#kinds.get(ref.kind) ?? []) {
      const object = informer.store.get(key)
      if (object) return this.#resource(ref.kind, object)
    }
    return undefined
  }

  list(kind: string, namespace?: string): readonly Resource[] {
    const objects = (this.#kinds.get(kind) ?? []).flatMap((informer) => [...informer.store.values()])
    const wanted = namespace === undefined ? objects : objects.filter((o) => o.metadata.namespace === namespace)
    return wanted.map((object) => this.#resource(kind, object))
  }

  async namespaceLabels(name: string): Promise<Readonly<Record<string, string>> | undefined> {
    const namespace = await this.#namespace(name)
    return namespace && (namespace.metadata.labels ?? {})
  }

  async namespaceTerminating(name: string): Promise<boolean> {
    const namespace = await this.#namespace(name)
    return namespace === undefined || namespace.metadata.deletionTimestamp !== undefined
  }

  async readSecretKey({ key, ...ref }: KeyRef): Promise<Secret | undefined> {
    return (await this.readSecret(ref))?.get(key)
  }

  async readSecret({ namespace, name }: NamespacedName): Promise<ReadonlyMap<string, Secret> | undefined> {
    const object = await this.#deps.client.get(SECRETS, { namespace, name })
    if (!object) return undefined
    const values = Object.entries(isRecord(object['data']) ? object['data'] : {})
    return new Map(
      values.map(([key, value]) => [key, new Secret(Buffer.from(String(value), 'base64').toString('utf8'))]),
    )
  }

  async readConfigMapKey({ namespace, name, key }: KeyRef): Promise<string | undefined> {
    const object = await this.#deps.client.get(CONFIG_MAPS, { namespace, name })
    const value = isRecord(object?.['data']) ? object['data'][key] : undefined
    return typeof value === 'string' ? value : undefined
  }

  outputSecret(ref: NamespacedName): OutputSecretMeta | undefined {
    const key = keyOf(ref)
    const cached = this.#secrets.map((informer) => informer.store.get(key)).find((object) => object !== undefined)
    const newer = this.#deps.writes.newerThan(key, cached?.metadata.resourceVersion)
    if (newer) return newer
    return cached && metaOf(cached)
  }

  async #namespace(name: string): Promise<KubeObject | undefined> {
    // The cache may be a moment behind, so that "absent" is asked of the server.
    const cached = this.#namespaces?.state === 'synced' ? this.#namespaces.store.get(name) : undefined
    return cached ?? this.#deps.client.get(NAMESPACES, { name }, { metadataOnly: true })
  }

  #resource(kind: string, object: KubeObject): Resource {
    const { uid = '', resourceVersion } = object.metadata
    const own = this.#deps.writes.statusAfter(uid, resourceVersion)
    return resourceOf(kind, own ? { ...object, status: own.status } : object)
  }

  #spread(type: ResourceType): readonly (string | typeof allNamespaces)[] {
    return type.namespaced && this.#options.namespaces ? this.#options.namespaces : [allNamespaces]
  }

  #informer(options: InformerOptions): Informer {
    return new Informer(options, this.#deps)
  }

  #outputSecrets(namespace: string | typeof allNamespaces, onChange: OnChange): Informer {
    const { managedLabel, secretManager } = this.#options
    const informer = this.#informer({
      type: SECRETS,
      namespace,
      metadataOnly: true,
      labelSelector: `${managedLabel}=true`,
      transform: (object) => ({ ...stripped(object), managedKeys: managedKeysOf(object, secretManager) }),
    })
    const { writes } = this.#deps
    informer.onChange(({ type, key, object }) => {
      const { namespace: where, name, resourceVersion } = object.metadata
      const ref = { kind: 'Secret', name, ...(where && { namespace: where }) }
      // At the start every resource is looked at anyway, and compares its Secret then.
      if (type === 'deleted') void writes.ended(key, resourceVersion).then(() => onChange(ref, 'user'))
      else if (informer.state !== 'starting')
        void writes.isOurs(key, resourceVersion).then((ours) => {
          if (!ours) onChange(ref, 'user')
        })
    })
    return informer
  }

  /** Inputs of cluster-scoped kinds, such as the password of a directory's bind account. Metadata only, never a value. */
  #central(type: ResourceType, onChange: OnChange): Informer {
    const informer = this.#informer({ type, namespace: this.#options.centralNamespace, metadataOnly: true })
    informer.onChange(({ object }) => {
      const { name, namespace, labels } = object.metadata
      // Outputs may live here too; those are followed on their own.
      if (informer.state === 'starting' || labels?.[this.#options.managedLabel] === 'true') return
      onChange({ kind: type.kind, name, ...(namespace && { namespace }) }, 'user')
    })
    return informer
  }

  async #resync(onChange: OnChange, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#deps
    while (!signal.aborted) {
      const ms = (this.#options.resyncMs ?? RESYNC_MS) * (0.9 + random.integer(201) / 1000)
      await clock.sleep(ms, signal).catch(() => undefined)
      if (signal.aborted) return
      for (const kind of this.#kinds.keys())
        for (const { metadata } of this.list(kind)) onChange(refOf(kind, metadata), 'resync')
    }
  }
}

function reportKind(informer: Informer, onChange: OnChange): void {
  const { kind } = informer.type
  informer.onChange((change: Change) => {
    if (change.type === 'updated' && !asksForWork(change)) return
    // What was done before we started is only looked at again; what was never done goes first.
    const done = informer.state === 'starting' && isObserved(change.object)
    onChange(refOf(kind, change.object.metadata), done ? 'resync' : 'user')
  })
}

/** Everything but status: annotations too, since requests by annotation do not change the generation. */
function asksForWork({ object, old }: Change): boolean {
  const parts = ({ generation, uid, labels, annotations, finalizers, deletionTimestamp }: KubeObject['metadata']) => [
    [generation, uid, labels ?? {}, annotations ?? {}],
    [finalizers ?? [], deletionTimestamp],
  ]
  return !old || !sameJson(parts(object.metadata), parts(old.metadata))
}

function isObserved({ status, metadata }: KubeObject): boolean {
  return isRecord(status) && status['observedGeneration'] === metadata.generation
}

function refOf(kind: string, { name, namespace }: { readonly name: string; readonly namespace?: string }): ResourceRef {
  return { kind, name, ...(namespace && { namespace }) }
}

function resourceOf(kind: string, object: KubeObject): Resource {
  const { name, namespace, uid = '', generation = 0, creationTimestamp, deletionTimestamp } = object.metadata
  const { labels = {}, annotations = {}, finalizers = [] } = object.metadata
  return {
    kind,
    metadata: {
      name,
      ...(namespace && { namespace }),
      uid,
      generation,
      creationTimestamp: new Date(creationTimestamp ?? 0),
      ...(deletionTimestamp && { deletionTimestamp: new Date(deletionTimestamp) }),
      labels,
      annotations,
      finalizers,
    },
    spec: object['spec'],
    ...(object['status'] !== undefined && { status: object['status'] }),
  }
}

function metaOf(object: KubeObject): OutputSecretMeta {
  const { uid = '', labels = {}, annotations = {} } = object.metadata
  const keys = object['managedKeys']
  return { uid, labels, annotations, managedKeys: Array.isArray(keys) ? keys.map(String) : undefined }
}
