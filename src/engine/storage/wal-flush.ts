import { closeSync, fdatasync, openSync } from 'node:fs'
import { promisify } from 'node:util'
import { messageOf, unavailable } from '../../lib/errors.ts'

export type Sync = (fd: number) => Promise<void>

/**
 * Makes what a SQLite file's write-ahead log holds durable while the event loop goes on; with `synchronous=FULL` it would stand still at
 * each commit. Whoever reads waits as well, so that nothing is told that a loss of power could still undo.
 *
 * After a flush that failed nobody knows what the disk holds, and a second one would not tell: nothing is read or written any more.
 */
export class WalFlush {
  readonly #file: string
  readonly #sync: Sync
  #fd: number | undefined
  #underWay: { readonly keys: ReadonlySet<string>; readonly done: Promise<void> } | undefined
  #failure: Error | undefined

  constructor(file: string, sync: Sync = promisify(fdatasync)) {
    this.#file = file
    this.#sync = sync
  }

  /** Resolves when all that was committed, these records among it, is durable. One at a time. */
  async run(keys: ReadonlySet<string>): Promise<void> {
    const done = this.#flush()
    this.#underWay = { keys, done }
    await done
    this.#underWay = undefined
  }

  /** Waits until what a read of a record (of all, without a key) has found just now is durable. */
  durable(key?: string): Promise<void> | undefined {
    const isMeant = key === undefined || this.#underWay?.keys.has(key)
    return isMeant ? this.#underWay?.done : undefined
  }

  requireWhole(): void {
    if (this.#failure) throw this.#failure
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd)
    this.#fd = undefined
  }

  async #flush(): Promise<void> {
    try {
      this.#fd ??= openSync(`${this.#file}-wal`, 'r+')
      await this.#sync(this.#fd)
    } catch (cause) {
      const why = `the disk did not keep what was written to the store (${messageOf(cause)})`
      this.#failure = unavailable(`${why}; the server must be started again`, { cause, reason: 'disk-failed' })
      throw this.#failure
    }
  }
}
