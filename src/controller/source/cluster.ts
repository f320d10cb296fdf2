import { abortable } from '../../lib/abortable.ts'
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
  type Namespaces,
  type ResourceType,
  SECRETS,
} from '../runtime/kube-object.ts'
import { managedKeysOf } from '../runtime/secret-writer.ts'
import { sameJson } from '../runtime/status.ts'
import { asksForWork, isObserved, metaOf, refOf, resourceOf } from './cluster-objects.ts'
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
 * It follows the cluster from `run` on, also while nobody has asked to `start`: who waits for the lead knows everything already.
 */
export class ClusterSource implements Source {
  readonly #options: ClusterSourceOptions
  readonly #deps: ClusterDeps
  readonly #kinds: ReadonlyMap<string, readonly Informer[]>
  readonly #secrets: readonly Informer[]
  readonly #namespaces: Informer | undefined
  readonly #central: readonly Informer[]
  /** Who is told; nobody while nobody leads. */
  #report: OnChange = () => undefined

  constructor(options: ClusterSourceOptions, deps: ClusterDeps) {
    this.#options = options
    this.#deps = deps
    const spread = ({ namespaced }: ResourceType): readonly Namespaces[] =>
      namespaced && options.namespaces ? options.namespaces : [allNamespaces]
    this.#kinds = new Map(
      options.types.map((type) => [type.kind, spread(type).map((namespace) => this.#objects(type, namespace))]),
    )
    const secretNamespaces = options.secretNamespaces ?? spread(SECRETS)
    this.#secrets = secretNamespaces.map((namespace) => this.#outputSecrets(namespace))
    this.#namespaces = options.namespaces ? undefined : this.#allNamespaces()
    this.#central = [SECRETS, CONFIG_MAPS].map((type) => this.#inputs(type))
  }

  /**
   * For readiness and metrics. Without those of the central namespace: it may be out of reach without anything else suffering, for its
   * objects are read when needed.
   */
  get informers(): readonly Informer[] {
    return [...[...this.#kinds.values()].flat(), ...this.#secrets, ...(this.#namespaces ? [this.#namespaces] : [])]
  }

  /** True while everything is known and the server has been heard in the last three minutes. */
  isReady(): boolean {
    return this.informers.every((i) => i.hasSynced && i.silentMs < READY_SILENCE_MS)
  }

  /** Resolves when everything is known; never, if the server never answers: race it with a signal. */
  async synced(): Promise<void> {
    await Promise.all(this.informers.map((informer) => informer.synced))
  }

  /** Follows the cluster until `signal` aborts; resolves when nothing runs any more. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.informers, ...this.#central].map((informer) => informer.run(signal)))
  }

  async start(kinds: readonly string[], onChange: OnChange, signal: AbortSignal): Promise<void> {
    const unknown = kinds.find((kind) => !this.#kinds.has(kind))
    if (unknown !== undefined) throw new Error(`kind ${unknown} is unknown to the cluster source`)
    const report: OnChange = (ref, why) => {
      if (!signal.aborted && (kinds.includes(ref.kind) || !this.#kinds.has(ref.kind))) onChange(ref, why)
    }
    this.#report = report
    await abortable(this.synced(), signal)
    // What was done before we started is only looked at again; what was never done goes first.
    for (const kind of kinds)
      for (const object of this.#known(kind))
        report(refOf(kind, object.metadata), isObserved(object) ? 'resync' : 'user')
    void this.#resync(kinds, report, signal)
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
    const objects = this.#known(kind)
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

  #known(kind: string): KubeObject[] {
    return (this.#kinds.get(kind) ?? []).flatMap((informer) => [...informer.store.values()])
  }

  #informer(options: InformerOptions): Informer {
    return new Informer(options, this.#deps)
  }

  #objects(type: ResourceType, namespace: Namespaces): Informer {
    const informer = this.#informer({ type, namespace })
    informer.onChange((change) => {
      const { uid } = change.object.metadata
      if (change.type === 'deleted' && uid) this.#deps.writes.forgetStatus(uid)
      // What is there at the start is reported by it.
      if (informer.state === 'starting' || (change.type === 'updated' && !asksForWork(change))) return
      this.#report(refOf(type.kind, change.object.metadata), 'user')
    })
    return informer
  }

  #allNamespaces(): Informer {
    const informer = this.#informer({ type: NAMESPACES, namespace: allNamespaces, metadataOnly: true })
    informer.onChange(({ type, object, old }) => {
      const same = old && object.metadata.deletionTimestamp === old.metadata.deletionTimestamp
      if (type === 'updated' && same && sameJson(object.metadata.labels, old.metadata.labels)) return
      this.#report({ kind: 'Namespace', name: object.metadata.name }, 'user')
    })
    return informer
  }

  #outputSecrets(namespace: Namespaces): Informer {
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
      if (type === 'deleted') void writes.ended(key, resourceVersion).then(() => this.#report(ref, 'user'))
      else if (informer.state !== 'starting')
        void writes.isOurs(key, resourceVersion).then((ours) => {
          if (!ours) this.#report(ref, 'user')
        })
    })
    return informer
  }

  /** Inputs of cluster-scoped kinds, such as the password of a directory's bind account. Metadata only, never a value. */
  #inputs(type: ResourceType): Informer {
    const informer = this.#informer({ type, namespace: this.#options.centralNamespace, metadataOnly: true })
    informer.onChange(({ object }) => {
      const { name, namespace, labels } = object.metadata
      // Outputs may live here too; those are followed on their own.
      if (labels?.[this.#options.managedLabel] === 'true') return
      // Nobody waits until these are known, so that even the first ones may be news.
      this.#report({ kind: type.kind, name, ...(namespace && { namespace }) }, 'user')
    })
    return informer
  }

  async #resync(kinds: readonly string[], report: OnChange, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#deps
    while (!signal.aborted) {
      const ms = (this.#options.resyncMs ?? RESYNC_MS) * (0.9 + random.integer(201) / 1000)
      await clock.sleep(ms, signal).catch(() => undefined)
      if (signal.aborted) return
      for (const kind of kinds) for (const { metadata } of this.list(kind)) report(refOf(kind, metadata), 'resync')
    }
  }
}
