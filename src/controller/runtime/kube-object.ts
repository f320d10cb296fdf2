/** What every object of the API has; everything else is unknown until the caller looks. */
export interface KubeMeta {
  readonly name: string
  readonly namespace?: string
  readonly uid?: string
  readonly resourceVersion?: string
  readonly generation?: number
  readonly creationTimestamp?: string
  readonly deletionTimestamp?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
  readonly finalizers?: readonly string[]
  readonly managedFields?: readonly ManagedFields[]
  readonly ownerReferences?: readonly { readonly uid: string }[]
}

/** One field manager's part of an object. */
export interface ManagedFields {
  readonly manager?: string
  readonly operation?: string
  readonly subresource?: string
  readonly fieldsV1?: unknown
}

export interface KubeObject {
  readonly apiVersion?: string
  readonly kind?: string
  readonly metadata: KubeMeta
  readonly [field: string]: unknown
}

/** One resource of the API as it is spelled in paths. */
export interface ResourceType {
  /** Empty for the core group. */
  readonly group: string
  readonly version: string
  readonly plural: string
  readonly kind: string
  readonly namespaced: boolean
}

/** Names one object; `namespace` is demanded for namespaced types. */
export interface ObjectRef {
  readonly name: string
  readonly namespace?: string | undefined
}

/** A list over the whole cluster has to be asked for by name: a forgotten namespace must never mean "all". */
export const allNamespaces = Symbol('all namespaces')
export type Namespaces = string | typeof allNamespaces

export const SECRETS = core('secrets', 'Secret', true)
export const CONFIG_MAPS = core('configmaps', 'ConfigMap', true)
export const NAMESPACES = core('namespaces', 'Namespace', false)
export const LEASES = type('coordination.k8s.io', 'v1', 'leases', 'Lease')
export const EVENTS = type('events.k8s.io', 'v1', 'events', 'Event')

function core(plural: string, kind: string, namespaced: boolean): ResourceType {
  return { group: '', version: 'v1', plural, kind, namespaced }
}

function type(group: string, version: string, plural: string, kind: string): ResourceType {
  return { group, version, plural, kind, namespaced: true }
}

export function apiVersionOf({ group, version }: ResourceType): string {
  return group === '' ? version : `${group}/${version}`
}

/** `namespace/name`, or `name` for cluster-scoped objects. */
export function keyOf({ namespace, name }: ObjectRef): string {
  return namespace ? `${namespace}/${name}` : name
}

/** The path of a collection. Throws when a namespaced type is asked for without saying where. */
export function collectionPath(resource: ResourceType, namespace: Namespaces | undefined): string {
  const base = resource.group === '' ? `/api/${resource.version}` : `/apis/${resource.group}/${resource.version}`
  if (!resource.namespaced || namespace === allNamespaces) return `${base}/${resource.plural}`
  if (!namespace) throw new Error(`${resource.plural}: a namespace is missing`)
  return `${base}/namespaces/${encodeURIComponent(namespace)}/${resource.plural}`
}

export function objectPath(resource: ResourceType, ref: ObjectRef, subresource?: string): string {
  if (ref.name === '') throw new Error(`${resource.plural}: a name is missing`)
  const path = `${collectionPath(resource, ref.namespace)}/${encodeURIComponent(ref.name)}`
  return subresource ? `${path}/${subresource}` : path
}

/** Resource versions of one resource are comparable decimal numbers (so documented since 1.35, true before). */
export function compareVersions(a: string | undefined, b: string | undefined): number {
  const [left, right] = [versionNumber(a), versionNumber(b)]
  return left < right ? -1 : left > right ? 1 : 0
}

function versionNumber(version: string | undefined): bigint {
  return version && /^\d+$/.test(version) ? BigInt(version) : 0n
}
