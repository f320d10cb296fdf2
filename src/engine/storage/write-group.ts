import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { unavailable } from '../../lib/errors.ts'
import { VersionConflict } from './driver.ts'
import { resultCode } from './sqlite-file.ts'

const LARGEST_GROUP = 256
const LARGEST_GROUP_BYTES = 4 * 1024 * 1024
const SQLITE_TOOBIG = 18
const SQLITE_CONSTRAINT = 19

export interface GroupHooks {
  /** Called first and last in each transaction. */
  readonly begin: () => void
  readonly end: () => void
  readonly committed: () => void
  /** Called when a transaction is undone; returns what its failure is to the callers. */
  readonly undone: (error: unknown) => unknown
  /** Makes durable what was committed since it was last called. */
  readonly flush: () => Promise<void> | undefined
}

interface Write {
  readonly sizeBytes: number
  /** Does the work inside the open transaction; returns what tells the caller. Throws `VersionConflict` before it changes anything. */
  readonly work: () => () => void
  readonly reject: (error: unknown) => void
}

/**
 * The one write path of a SQLite file. Writes asked for within one turn of the event loop, or while the last ones are flushed, share one
 * transaction and one flush; one that fails by its own doing leaves the others alone. A group is bounded.
 */
export class WriteGroup {
  readonly #db: DatabaseSync
  readonly #sql: Readonly<Record<'begin' | 'commit', StatementSync>>
  readonly #hooks: GroupHooks
  #waiting: Write[] = []
  #isBusy = false
  #idle: PromiseWithResolvers<void> | undefined
  #held = false
  #closed = false

  constructor(db: DatabaseSync, hooks: GroupHooks) {
    this.#db = db
    this.#hooks = hooks
    this.#sql = {
      begin: db.prepare('BEGIN IMMEDIATE'),
      commit: db.prepare('COMMIT'),
    }
  }

  /** Runs `work` in the next group; resolves with its result when that is durable. */
  run<T>(sizeBytes: number, work: () => T): Promise<T> {
    if (this.#closed) return Promise.reject(unavailable('the store is closed'))
    return new Promise<T>((resolve, reject) => {
      const report = () => {
        const result = work()
        return () => resolve(result)
      }
      this.#waiting.push({ sizeBytes, work: report, reject })
      if (this.#idle) return
      this.#idle = Promise.withResolvers<void>()
      this.#schedule()
    })
  }

  /** Until `release`, groups run only inside `turn`. */
  hold(): void {
    this.#held = true
  }

  turn(): void {
    if (this.#waiting.length > 0 && !this.#isBusy) void this.#writeGroup()
  }

  release(): void {
    this.#held = false
    if (this.#idle) this.#schedule()
  }

  /** Refuses further writes and resolves when those asked for have ended. */
  async close(): Promise<void> {
    this.#closed = true
    await this.#idle?.promise
  }

  #schedule(): void {
    setImmediate(() => {
      if (!this.#held) this.turn()
    })
  }

  async #writeGroup(): Promise<void> {
    this.#isBusy = true
    const group = this.#takeGroup()
    const tells = this.#commit(group)
    try {
      await this.#hooks.flush()
      for (const tell of tells) tell()
    } catch (error) {
      for (const { reject } of group) reject(error)
    }
    this.#isBusy = false
    if (this.#waiting.length > 0) {
      this.#schedule()
      return
    }
    this.#idle?.resolve()
    this.#idle = undefined
  }

  #takeGroup(): Write[] {
    let count = 0
    let sizeBytes = 0
    for (const write of this.#waiting) {
      sizeBytes += write.sizeBytes
      if (count === LARGEST_GROUP || (count > 0 && sizeBytes > LARGEST_GROUP_BYTES)) break
      count += 1
    }
    return this.#waiting.splice(0, count)
  }

  #commit(group: readonly Write[]): (() => void)[] {
    const outcomes: (() => void)[] = []
    try {
      this.#sql.begin.run()
      this.#hooks.begin()
      for (const write of group) {
        try {
          outcomes.push(write.work())
        } catch (error) {
          // It looked before it changed anything; whatever else is thrown may leave a half.
          if (!(error instanceof VersionConflict)) throw error
          outcomes.push(() => write.reject(error))
        }
      }
      this.#hooks.end()
      this.#sql.commit.run()
    } catch (error) {
      // After a full disk or an I/O error SQLite may have rolled back by itself.
      if (this.#db.isTransaction) this.#rollback()
      const failure = this.#hooks.undone(error)
      if (group.length > 1 && isOwnFault(error)) return group.flatMap((write) => this.#commit([write]))
      return group.map((write) => () => write.reject(failure))
    }
    this.#hooks.committed()
    return outcomes
  }

  #rollback(): void {
    try {
      this.#db.exec('ROLLBACK')
    } catch {
      // The error that brought us here is the one to tell; SQLite undoes the rest when the file is opened again.
    }
  }
}

/** Whether only one write is to blame: a value that SQLite refuses, or our own mistake. */
function isOwnFault(error: unknown): boolean {
  const code = resultCode(error)
  return code === undefined || code === SQLITE_TOOBIG || code === SQLITE_CONSTRAINT
}
