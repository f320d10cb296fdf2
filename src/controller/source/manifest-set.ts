import type { Clock } from '../../lib/clock.ts'
import { messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import { findKind } from '../../schema/kinds.ts'
import { sameValue } from '../../schema/resource.ts'
import { readSpec } from '../../schema/validate.ts'
import { derivedUid, entriesOf, type Manifest, ManifestDirectory } from './manifests.ts'
import { keyOf, type ObjectStore, refOf, type StoredObject } from './object-store.ts'
import type { ResourceRef } from './source.ts'

/*
 * What the manifests say against what is in force. A file that cannot be read keeps the last good state of its objects; a document that
 * breaks a rule keeps the spec that was in force; a document that vanished is deleted once it has been missing for a while.
 */

export interface ManifestSetOptions {
  readonly directory: string
  readonly objects: ObjectStore
  readonly clock: Clock
  readonly log: Logger
  readonly missingMs: number
}

/** Secrets, ConfigMaps and Namespaces: read only, never owned. */
interface Plain {
  readonly ref: ResourceRef
  readonly file: string
  readonly labels: Readonly<Record<string, string>>
  readonly entries: ReadonlyMap<string, string>
}

export class ManifestSet {
  readonly #options: ManifestSetOptions
  readonly #directory: ManifestDirectory
  #plain = new Map<string, Plain>()
  /** Objects whose document is missing, since when (monotonic). */
  readonly #missing = new Map<string, number>()
  /** Problems told already, so that each is told once. */
  #told = new Set<string>()

  constructor(options: ManifestSetOptions) {
    this.#options = options
    this.#directory = new ManifestDirectory(options.directory)
  }

  entries(kind: 'Secret' | 'ConfigMap', namespace: string, name: string): ReadonlyMap<string, string> | undefined {
    return this.#plain.get(keyOf({ kind, namespace, name }))?.entries
  }

  namespaceLabels(name: string): Readonly<Record<string, string>> {
    return this.#plain.get(keyOf({ kind: 'Namespace', name }))?.labels ?? {}
  }

  /** When a missing document should be looked for again; undefined when none is missing. */
  lookAgainInMs(): number | undefined {
    return this.#missing.size === 0 ? undefined : this.#options.missingMs
  }

  /** Reads the directory and returns what changed. Throws when the directory itself cannot be read; nothing changes then. */
  async look(): Promise<ResourceRef[]> {
    const files = await this.#directory.read()
    const problems = new Set<string>()
    const broken = new Set<string>()
    const declared = new Map<string, Manifest>()
    for (const file of files) {
      if ('problem' in file) {
        broken.add(file.file)
        problems.add(`${file.file}: ${file.problem}; what the whole file said before stays in force`)
        continue
      }
      for (const manifest of file.manifests) {
        const key = keyOf(manifest)
        const first = declared.get(key)
        if (first)
          problems.add(`${manifest.file}: ${manifest.kind} ${manifest.name} is declared in ${first.file} already`)
        else declared.set(key, manifest)
      }
    }
    const changed = [...this.#readPlain(declared, broken, problems)]
    for (const manifest of declared.values()) {
      if (!findKind(manifest.kind)) continue
      if (await this.#declare(manifest, problems)) changed.push(refOfManifest(manifest))
    }
    changed.push(...(await this.#deleteMissing(declared, broken)))
    this.#tell(problems)
    return changed
  }

  #readPlain(
    declared: ReadonlyMap<string, Manifest>,
    broken: ReadonlySet<string>,
    problems: Set<string>,
  ): ResourceRef[] {
    const next = new Map<string, Plain>()
    for (const [key, old] of this.#plain) if (broken.has(old.file)) next.set(key, old)
    for (const [key, manifest] of declared) {
      if (findKind(manifest.kind)) continue
      if (!['Secret', 'ConfigMap', 'Namespace'].includes(manifest.kind)) {
        problems.add(`${manifest.file}: ${manifest.kind} ${manifest.name} is ignored: not a kind that is used here`)
        continue
      }
      try {
        const entries = manifest.kind === 'Namespace' ? new Map<string, string>() : entriesOf(manifest)
        next.set(key, { ref: refOfManifest(manifest), file: manifest.file, labels: manifest.labels, entries })
      } catch (error) {
        problems.add(`${manifest.file}: ${messageOf(error)}`)
        const old = this.#plain.get(key)
        if (old) next.set(key, old)
      }
    }
    const before = this.#plain
    this.#plain = next
    return [...new Map([...before, ...next]).values()]
      .filter(({ ref }) => !samePlain(before.get(keyOf(ref)), next.get(keyOf(ref))))
      .map(({ ref }) => ref)
  }

  /** Puts what a document says in force; false when nothing changed. */
  async #declare(manifest: Manifest, problems: Set<string>): Promise<boolean> {
    const { objects, clock } = this.#options
    const kind = findKind(manifest.kind)
    if (!kind) return false
    const ref = refOfManifest(manifest)
    const old = objects.get(ref)
    // Deletion is final: the document counts again when the object is gone.
    if (old?.metadata.deletionTimestamp) return false
    const spec = manifest.body['spec'] ?? {}
    const reading = readSpec(kind, spec, { strict: true, ...(old && { old: old.spec }) })
    const found = 'problems' in reading ? reading.problems : []
    const rejected = kind.reservedNames?.includes(manifest.name)
      ? `the name ${manifest.name} is taken`
      : found.join('; ').slice(0, 2000)
    if (rejected !== '') problems.add(`${manifest.file}: ${manifest.kind} ${manifest.name}: ${rejected}`)
    if (!old && rejected !== '') return false
    const sameSpec = old !== undefined && (rejected !== '' || sameValue(old.spec, spec))
    const next: StoredObject = {
      kind: manifest.kind,
      metadata: {
        name: manifest.name,
        ...(manifest.namespace !== undefined && { namespace: manifest.namespace }),
        uid: old?.metadata.uid ?? derivedUid(manifest.kind, manifest.namespace, manifest.name),
        generation: sameSpec ? old.metadata.generation : (old?.metadata.generation ?? 0) + 1,
        creationTimestamp: old?.metadata.creationTimestamp ?? clock.now(),
        labels: manifest.labels,
        annotations: manifest.annotations,
        finalizers: old?.metadata.finalizers ?? [],
      },
      spec: sameSpec ? old.spec : spec,
      ...(old?.status !== undefined && { status: old.status }),
      file: manifest.file,
      ...(rejected !== '' && { rejected }),
    }
    if (old && sameValue({ ...old, status: undefined }, { ...next, status: undefined })) return false
    await objects.put(next)
    return true
  }

  async #deleteMissing(declared: ReadonlyMap<string, Manifest>, broken: ReadonlySet<string>): Promise<ResourceRef[]> {
    const { objects, clock, missingMs, log } = this.#options
    const changed: ResourceRef[] = []
    for (const object of objects.all()) {
      const ref = refOf(object)
      const key = keyOf(ref)
      if (declared.has(key) || broken.has(object.file) || object.metadata.deletionTimestamp) {
        this.#missing.delete(key)
        continue
      }
      const since = this.#missing.get(key)
      if (since === undefined) this.#missing.set(key, clock.monotonicMs())
      if (since === undefined || clock.monotonicMs() - since < missingMs) continue
      this.#missing.delete(key)
      log.info({ ...ref }, 'the manifest is gone: deleting')
      if (object.metadata.finalizers.length === 0) await objects.remove(ref)
      else await objects.put({ ...object, metadata: { ...object.metadata, deletionTimestamp: clock.now() } })
      changed.push(ref)
    }
    return changed
  }

  #tell(problems: Set<string>): void {
    for (const problem of problems)
      if (!this.#told.has(problem)) this.#options.log.error({ problem }, 'a manifest is not in force')
    this.#told = problems
  }
}

function refOfManifest({ kind, name, namespace }: Manifest): ResourceRef {
  return { kind, name, ...(namespace !== undefined && { namespace }) }
}

function samePlain(one: Plain | undefined, other: Plain | undefined): boolean {
  if (!one || !other) return one === other
  return (
    sameValue(one.labels, other.labels) && sameValue(Object.fromEntries(one.entries), Object.fromEntries(other.entries))
  )
}
