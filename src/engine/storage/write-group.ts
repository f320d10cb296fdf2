import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { unavailable } from '../../lib/errors.ts'
import { resultCode } from './sqlite-file.ts'

const LARGEST_GROUP = 256
const LARGEST_GROUP_BYTES = 4 * 1024 * 1024
const SQLITE_TOOBIG = 18
const SQLITE_CONSTRAINT = 19

export interface GroupHooks {
  /** Called first and last in each transaction. */
  readonly begin: () => void
  readonly end: () => void
  /** What a failure of the whole group is to its callers. */
  readonly explain: (error: unknown) => unknown
}

interface Write {
  readonly sizeBytes: number
  /** Does the work inside the open transaction; returns what tells the caller once the group is durable. */
  readonly work: () => () => void
  readonly reject: (error: unknown) => void
}

/**
 * The one write path of a SQLite file. Writes asked for within one turn of the event loop share one transaction and one fsync; each
 * has a savepoint, so that one that fails by its own doing undoes itself only. A group is bounded: the loop turns between two groups.
 */
export class WriteGroup {
  readonly #db: DatabaseSync
  readonly #sql: Readonly<Record<'begin' | 'save' | 'undo' | 'keep' | 'commit', StatementSync>>
  readonly #hooks: GroupHooks
  #waiting: Write[] = []
  #idle: PromiseWithResolvers<void> | undefined
  #held = false
  #closed = false

  constructor(db: DatabaseSync, hooks: GroupHooks) {
    this.#db = db
    this.#hooks = hooks
    this.#sql = {
      begin: db.prepare('BEGIN IMMEDIATE'),
      save: db.prepare('SAVEPOINT own'),
      undo: db.prepare('ROLLBACK TO own'),
      keep: db.prepare('RELEASE own'),
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
    if (this.#waiting.length > 0) this.#flush()
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

  #flush(): void {
    const group = this.#takeGroup()
    for (const tell of this.#commit(group)) tell()
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
        this.#sql.save.run()
        try {
          outcomes.push(write.work())
        } catch (error) {
          if (!isOwnFault(error)) throw error
          this.#sql.undo.run()
          outcomes.push(() => write.reject(error))
        }
        this.#sql.keep.run()
      }
      this.#hooks.end()
      this.#sql.commit.run()
      return outcomes
    } catch (error) {
      // After a full disk or an I/O error SQLite may have rolled back by itself.
      if (this.#db.isTransaction) this.#rollback()
      const failure = this.#hooks.explain(error)
      return group.map((write) => () => write.reject(failure))
    }
  }

  #rollback(): void {
    try {
      this.#db.exec('ROLLBACK')
    } catch {
      // The error that brought us here is the one to tell; SQLite undoes the rest when the file is opened again.
    }
  }
}

/** Whether only the write that failed is to blame: an expectation that does not hold, or a value that SQLite refuses. */
function isOwnFault(error: unknown): boolean {
  const code = resultCode(error)
  return code === undefined || code === SQLITE_TOOBIG || code === SQLITE_CONSTRAINT
}
