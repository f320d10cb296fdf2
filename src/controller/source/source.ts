import type { Secret } from '../../lib/secret.ts'
import type { SecretWriteRequest, SecretWriteResult } from '../runtime/secret-writer.ts'

export type { SecretWriteRequest, SecretWriteResult } from '../runtime/secret-writer.ts'

/*
 * What reconcilers see of the world: a Source of declared resources and a Sink for what comes of them. There are two pairs:
 * a cluster (`cluster.ts`) and a directory of manifests with files as Secrets (`directory.ts`). Reconcilers never learn which.
 */

/** The part of an object's metadata that both sources know. A directory of manifests makes up stable uids and generations. */
export interface ObjectMeta {
  readonly name: string
  readonly namespace?: string
  readonly uid: string
  readonly generation: number
  readonly creationTimestamp: Date
  readonly deletionTimestamp?: Date
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly finalizers: readonly string[]
}

/** A declared object. From a source, spec and status are unparsed. */
export interface Resource<S = unknown, T = unknown> {
  readonly kind: string
  readonly metadata: ObjectMeta
  readonly spec: S
  readonly status?: T
}

/** Names an object; `namespace` is absent for cluster-scoped kinds. */
export interface ResourceRef {
  readonly kind: string
  readonly name: string
  readonly namespace?: string
}

/** A Secret or a ConfigMap by name. */
export interface NamespacedName {
  readonly namespace: string
  readonly name: string
}

/** One entry of a Secret or a ConfigMap. */
export interface KeyRef extends NamespacedName {
  readonly key: string
}

/** What is known of a Secret that we wrote, without its values. */
export interface OutputSecretMeta {
  readonly uid: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  /**
   * The data keys that still hold what we wrote: when somebody edits or removes a key, it leaves this list. Compare it with
   * the keys that should be there to notice drift without reading a value. `undefined` where the sink cannot tell.
   */
  readonly managedKeys: readonly string[] | undefined
  /** Uids of the objects with which it goes; absent where the sink knows no such thing. */
  readonly owners?: readonly string[]
}

/** Where declared objects come from. All reads but the `read…` and `namespace…` ones answer from memory. */
export interface Source {
  /**
   * Starts following objects of these kinds and resolves once all that exist have been reported. Calls back with each object that
   * appeared, changed or went; with kind `Secret` for each output Secret that somebody else than our sink changed or removed, and
   * for each Secret (kind `ConfigMap` for each ConfigMap) of the central namespace; with kind `Namespace` when a namespace
   * appeared, changed labels or is going. Why `resync` means that nothing is known to have changed. Works until `signal` aborts.
   */
  start(
    kinds: readonly string[],
    onChange: (ref: ResourceRef, why: 'user' | 'resync') => void,
    signal: AbortSignal,
  ): Promise<void>
  get(ref: ResourceRef): Resource | undefined
  list(kind: string, namespace?: string): readonly Resource[]
  /** `undefined`: no such namespace. */
  namespaceLabels(name: string): Promise<Readonly<Record<string, string>> | undefined>
  /** True when the namespace is going or gone: creates in it are refused. */
  namespaceTerminating(name: string): Promise<boolean>
  /** `undefined`: no such Secret, or no such key in it. */
  readSecretKey(ref: KeyRef): Promise<Secret | undefined>
  readSecret(ref: NamespacedName): Promise<ReadonlyMap<string, Secret> | undefined>
  readConfigMapKey(ref: KeyRef): Promise<string | undefined>
  /** From memory; at most a moment behind our own last write. */
  outputSecret(ref: NamespacedName): OutputSecretMeta | undefined
}

/** What an event says. Never a password, a token or an LDIF in `note`. */
export interface EventNote {
  readonly type: 'Normal' | 'Warning'
  readonly reason: string
  readonly note: string
  readonly action: string
}

/** Where results go. Every method may be repeated after a crash; none touches an object of another uid than the one named. */
export interface Sink {
  applySecret(request: SecretWriteRequest): Promise<SecretWriteResult>
  /** Mode `Merge` takes only our keys out of the Secret; `Create` (default) deletes it. Another uid or absent: nothing happens. */
  deleteSecret(ref: NamespacedName, uid: string, mode?: 'Create' | 'Merge'): Promise<void>
  /** Does nothing when equal to what the source (or our last write) has. */
  writeStatus(resource: Resource, status: unknown): Promise<void>
  addFinalizer(resource: Resource, name: string): Promise<void>
  removeFinalizer(resource: Resource, name: string): Promise<void>
  /** Never throws and never waits. */
  event(resource: Resource, event: EventNote): void
}
