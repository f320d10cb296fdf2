import { type FSWatcher, watch } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'

/**
 * Notices of the file system for a folder and those below it. One watcher a folder: it tells of every file in it, also of one that was
 * replaced by a rename (Node's own recursive watching follows the old file then). Where there are no notices, looking remains.
 */
export class FolderWatch implements Disposable {
  readonly #root: string
  readonly #notice: () => void
  readonly #log: Logger
  readonly #watchers = new Map<string, FSWatcher>()

  constructor(root: string, notice: () => void, log: Logger) {
    this.#root = root
    this.#notice = notice
    this.#log = log
  }

  /** Follows folders that came, lets go of those that went. Returns whether any came: their files may have come unseen. */
  async refresh(): Promise<boolean> {
    const folders = new Set([this.#root])
    const collect = async (folder: string): Promise<void> => {
      const found = await readdir(folder, { withFileTypes: true }).catch(() => [])
      for (const entry of found) {
        if (!entry.isDirectory() || entry.name.startsWith('.')) continue
        const path = join(folder, entry.name)
        folders.add(path)
        await collect(path)
      }
    }
    await collect(this.#root)
    for (const [path, watcher] of this.#watchers) if (!folders.has(path)) this.#drop(path, watcher)
    const fresh = [...folders].filter((path) => !this.#watchers.has(path))
    for (const path of fresh) this.#follow(path)
    return fresh.length > 0
  }

  [Symbol.dispose](): void {
    for (const [path, watcher] of this.#watchers) this.#drop(path, watcher)
  }

  #follow(path: string): void {
    try {
      const watcher = watch(path, { persistent: false }, this.#notice)
      watcher.on('error', (error) => {
        this.#log.debug({ path, error: messageOf(error) }, 'a folder is not followed any more')
        this.#drop(path, watcher)
      })
      this.#watchers.set(path, watcher)
    } catch (error) {
      this.#log.debug({ path, error: messageOf(error) }, 'a folder cannot be followed')
    }
  }

  #drop(path: string, watcher: FSWatcher): void {
    watcher.close()
    this.#watchers.delete(path)
  }
}
