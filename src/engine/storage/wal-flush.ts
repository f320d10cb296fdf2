import { closeSync, fdatasync, openSync } from 'node:fs'
import { promisify } from 'node:util'
import { messageOf, unavailable } from '../../lib/errors.ts'

export type Sync = (fd: number) => Promise<void>

/**
 * Makes what a SQLite file's write-ahead log holds durable while the event loop goes on; with `synchronous=FULL` it would stand still at
 * each commit. Whoever reads waits as well, so that nothing is told that a loss of power could still undo.
 *
 * After a flush that failed nobody knows what the disk holds, and a second one would not tell: nothing is read or written any more. Who opens
 * the file anew writes the log again (`openDatabase`).
 */
export class WalFlush {
  readonly #fd: number
  readonly #sync: Sync
  readonly #failed = Promise.withResolvers<unknown>()
  #underWay: { readonly keys: ReadonlySet<string>; readonly done: Promise<void> } | undefined
  #failure: Error | undefined

  /** The file is open, so its log is there; it stays the same file until that one is closed. */
  constructor(file: string, sync: Sync = promisify(fdatasync)) {
    this.#fd = openSync(`${file}-wal`, 'r+')
    this.#sync = sync
  }

  /** Resolves with the failure of a flush. */
  get failed(): Promise<unknown> {
    return this.#failed.promise
  }

  /** Resolves when all that was committed, these records among it, is durable. One at a time. */
  async run(keys: ReadonlySet<string>): Promise<void> {
    const done = this.#flush()
    this.#underWay = { keys, done }
    await done
    this.#underWay = undefined
  }

  /** Waits until what a read of a record has found just now is durable. */
  durable(key: string): Promise<void> | undefined {
    return this.#underWay?.keys.has(key) ? this.#underWay.done : undefined
  }

  /** The same for a read of many. */
  allDurable(): Promise<void> | undefined {
    return this.#underWay?.done
  }

  requireWhole(): void {
    if (this.#failure) throw this.#failure
  }

  close(): void {
    closeSync(this.#fd)
  }

  async #flush(): Promise<void> {
    try {
      await this.#sync(this.#fd)
    } catch (cause) {
      const why = `the disk may not have kept what was written to the store (${messageOf(cause)})`
      this.#failure = unavailable(`${why}; the server must be started again`, { cause, reason: 'disk-failed' })
      this.#failed.resolve(this.#failure)
      throw this.#failure
    }
  }
}
