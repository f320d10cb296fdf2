import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../lib/errors.ts'
import { KeyedLock } from '../../lib/keyed-lock.ts'
import type { Logger } from '../../lib/log.ts'
import { sameValue } from '../../schema/resource.ts'
import { replaceFile } from './atomic-file.ts'
import type { ObjectMeta, Resource, ResourceRef } from './source.ts'

/** An object of the directory source with what only that source knows. */
export interface StoredObject extends Resource {
  readonly metadata: ObjectMeta
  /** The manifest file that declares it. */
  readonly file: string
  /** Why the manifest's present spec is not in force; the older one is. */
  readonly rejected?: string
}

/**
 * The objects of the directory source: in memory, and each in a file of its own, so that an object whose manifest vanished while nothing
 * ran is still known and cleaned up. The files hold no secret. The memory is what counts; a failed write is reported and tried again with
 * the object's next change.
 */
export class ObjectStore {
  readonly #objects = new Map<string, StoredObject>()
  readonly #locks = new KeyedLock()
  readonly #folder: string
  readonly #log: Logger

  constructor(folder: string, log: Logger) {
    this.#folder = folder
    this.#log = log
  }

  /** Reads what an earlier run left. A damaged file is reported and counts as absent. */
  async load(): Promise<void> {
    const files = await readdir(this.#folder, { recursive: true }).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return []
      throw error
    })
    for (const file of files.filter((name) => name.endsWith('.json'))) {
      try {
        const object = revive(JSON.parse(await readFile(join(this.#folder, file), 'utf8')))
        this.#objects.set(keyOf(refOf(object)), object)
      } catch (error) {
        this.#log.error({ file, error: messageOf(error) }, 'state of an object cannot be read')
      }
    }
  }

  get(ref: ResourceRef): StoredObject | undefined {
    return this.#objects.get(keyOf(ref))
  }

  all(): StoredObject[] {
    return [...this.#objects.values()]
  }

  /** Puts an object and makes it durable. */
  async put(object: StoredObject): Promise<void> {
    if (sameValue(this.get(refOf(object)), object)) return
    this.#objects.set(keyOf(refOf(object)), object)
    await this.#save(refOf(object))
  }

  async remove(ref: ResourceRef): Promise<void> {
    this.#objects.delete(keyOf(ref))
    await this.#save(ref)
  }

  /** Writes what memory holds at that time: later changes that wait behind this one find nothing older left. */
  async #save(ref: ResourceRef): Promise<void> {
    const path = join(this.#folder, ref.kind, ref.namespace ?? '_cluster', `${ref.name}.json`)
    await this.#locks.run(path, async () => {
      const object = this.get(ref)
      if (object) await replaceFile(path, `${JSON.stringify(object, undefined, 2)}\n`, { sync: true })
      else await rm(path, { force: true })
    })
  }
}

export function refOf({ kind, metadata: { name, namespace } }: Resource): ResourceRef {
  return { kind, name, ...(namespace !== undefined && { namespace }) }
}

export function keyOf({ kind, name, namespace }: ResourceRef): string {
  return `${kind}/${namespace ?? ''}/${name}`
}

function revive(stored: StoredObject): StoredObject {
  const { creationTimestamp, deletionTimestamp, ...metadata } = stored.metadata
  return {
    ...stored,
    metadata: {
      ...metadata,
      creationTimestamp: new Date(creationTimestamp),
      ...(deletionTimestamp !== undefined && { deletionTimestamp: new Date(deletionTimestamp) }),
    },
  }
}
