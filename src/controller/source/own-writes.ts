import { compareVersions } from '../runtime/kube-object.ts'
import type { OutputSecretMeta } from './source.ts'

interface Write {
  readonly resourceVersion: string
  readonly meta: OutputSecretMeta
}

/**
 * What we wrote last, so that the watch's echo of our own writes to Secrets is not taken for somebody's change, and so that
 * a look right after a write sees it before the watch has brought it.
 */
export class OwnWrites {
  /** By the uid of the resource, until the watch has caught up. */
  readonly #statuses = new Map<string, { readonly resourceVersion: string; readonly status: unknown }>()
  readonly #last = new Map<string, Write>()
  readonly #underWay = new Map<string, Promise<unknown>>()

  /** Runs a write and remembers what it tells about the Secret afterwards; `undefined` forgets what was known. */
  async during<T>(
    key: string,
    write: () => Promise<{ readonly result: T; readonly after: Write | undefined }>,
  ): Promise<T> {
    const writing = write()
    this.#underWay.set(key, writing)
    try {
      const { result, after } = await writing
      if (after) this.#last.set(key, after)
      else this.#last.delete(key)
      return result
    } finally {
      if (this.#underWay.get(key) === writing) this.#underWay.delete(key)
    }
  }

  /** Whether a state of the Secret is one that we made, waiting for the answer of a write under way: its echo may come first. */
  async isOurs(key: string, resourceVersion: string | undefined): Promise<boolean> {
    await this.#settled(key)
    const last = this.#last.get(key)
    return last !== undefined && compareVersions(resourceVersion, last.resourceVersion) <= 0
  }

  /** What we wrote, if the watch has brought only an older state (or none at all) so far. */
  newerThan(key: string, resourceVersion: string | undefined): OutputSecretMeta | undefined {
    const last = this.#last.get(key)
    return last && compareVersions(last.resourceVersion, resourceVersion) > 0 ? last.meta : undefined
  }

  noteStatus(uid: string, resourceVersion: string, status: unknown): void {
    this.#statuses.set(uid, { resourceVersion, status })
  }

  /** The status that we wrote after this version of the resource, if we did. */
  statusAfter(uid: string, resourceVersion: string | undefined): { readonly status: unknown } | undefined {
    const own = this.#statuses.get(uid)
    if (own && compareVersions(own.resourceVersion, resourceVersion) > 0) return own
    this.#statuses.delete(uid)
    return undefined
  }

  forgetStatus(uid: string): void {
    this.#statuses.delete(uid)
  }

  /** The Secret ended at this version: forget what we wrote before. */
  async ended(key: string, resourceVersion: string | undefined): Promise<void> {
    await this.#settled(key)
    const last = this.#last.get(key)
    if (last && compareVersions(last.resourceVersion, resourceVersion) <= 0) this.#last.delete(key)
  }

  /** `during` waits for the same promise since earlier, so that it has noted the answer by then. */
  async #settled(key: string): Promise<void> {
    await this.#underWay.get(key)?.catch(() => undefined)
  }
}
