import { compareVersions, type KubeObject, keyOf } from './kube-object.ts'

/** One difference between what was known and what is. Of a deleted one `object` is the last state, at the version of its end. */
export interface Change {
  readonly type: 'added' | 'updated' | 'deleted'
  readonly key: string
  readonly object: KubeObject
  readonly old?: KubeObject
}

export type Indexer = (object: KubeObject) => readonly string[]

/** The objects of one resource in memory, by key and by the values that indexers take from them. */
export class ObjectStore {
  readonly #objects = new Map<string, KubeObject>()
  readonly #indexers: ReadonlyMap<string, Indexer>
  readonly #indexes = new Map<string, Map<string, Set<string>>>()

  constructor(indexers: Readonly<Record<string, Indexer>> = {}) {
    this.#indexers = new Map(Object.entries(indexers))
    for (const name of this.#indexers.keys()) this.#indexes.set(name, new Map())
  }

  get size(): number {
    return this.#objects.size
  }

  get(key: string): KubeObject | undefined {
    return this.#objects.get(key)
  }

  keys(): IterableIterator<string> {
    return this.#objects.keys()
  }

  entries(): IterableIterator<[string, KubeObject]> {
    return this.#objects.entries()
  }

  values(): IterableIterator<KubeObject> {
    return this.#objects.values()
  }

  /** Objects whose indexer `name` gave `value`. Throws when there is no such index. */
  byIndex(name: string, value: string): KubeObject[] {
    const index = this.#indexes.get(name)
    if (!index) throw new Error(`no index named ${name}`)
    const objects: KubeObject[] = []
    for (const key of index.get(value) ?? []) {
      const object = this.#objects.get(key)
      if (object) objects.push(object)
    }
    return objects
  }

  /** `undefined` when this state, or a later one, was known already: a watch that goes on from an older version repeats events. */
  put(object: KubeObject): Change | undefined {
    const key = keyOf(object.metadata)
    const old = this.#objects.get(key)
    if (old && compareVersions(object.metadata.resourceVersion, old.metadata.resourceVersion) <= 0) return undefined
    this.#index(key, old, object)
    this.#objects.set(key, object)
    return old ? { type: 'updated', key, object, old } : { type: 'added', key, object }
  }

  /** Removes the object, which ended at `resourceVersion`; not if a later state is known. */
  remove(key: string, resourceVersion: string | undefined): Change | undefined {
    const old = this.#objects.get(key)
    if (!old) return undefined
    if (compareVersions(resourceVersion, old.metadata.resourceVersion) < 0) return undefined
    this.#index(key, old, undefined)
    this.#objects.delete(key)
    const metadata = { ...old.metadata, ...(resourceVersion && { resourceVersion }) }
    return { type: 'deleted', key, object: { ...old, metadata } }
  }

  /**
   * Becomes the state that the server had at `resourceVersion`, by key; returns the differences. What the server has counts, also where
   * it is older than what was known: then the server was set back.
   */
  replace(state: ReadonlyMap<string, KubeObject>, resourceVersion: string): Change[] {
    const changes: (Change | undefined)[] = []
    const end = (key: string, { metadata: { resourceVersion: known } }: KubeObject) =>
      changes.push(this.remove(key, compareVersions(known, resourceVersion) > 0 ? known : resourceVersion))
    for (const [key, old] of [...this.#objects]) if (!state.has(key)) end(key, old)
    for (const [key, object] of state) {
      const old = this.#objects.get(key)
      // Gone and made again under the same name while nobody looked: two objects, two changes. One that is older than what was known
      // ends too: what was written since never happened.
      const isAnother = old?.metadata.uid !== object.metadata.uid
      const isOlder = compareVersions(object.metadata.resourceVersion, old?.metadata.resourceVersion) < 0
      if (old && (isAnother || isOlder)) end(key, old)
      changes.push(this.put(object))
    }
    return changes.filter((change) => change !== undefined)
  }

  #index(key: string, old: KubeObject | undefined, object: KubeObject | undefined): void {
    for (const [name, indexer] of this.#indexers) {
      const index = this.#indexes.get(name)
      if (!index) continue
      for (const value of old ? indexer(old) : []) {
        const keys = index.get(value)
        keys?.delete(key)
        if (keys?.size === 0) index.delete(value)
      }
      for (const value of object ? indexer(object) : []) {
        const keys = index.get(value) ?? new Set()
        index.set(value, keys.add(key))
      }
    }
  }
}
