import { existsSync, rmSync } from 'node:fs'
import { backup, type DatabaseSync, type StatementSync } from 'node:sqlite'
import { AppError, unavailable } from '../../lib/errors.ts'
import {
  type ClaimedRecord,
  type CommitResult,
  type DriverChange,
  type DriverEvent,
  type DriverRecord,
  type StorageDriver,
  VersionConflict,
} from './driver.ts'
import { alreadyThere, createPrivateFile, fileFailure, flushFile, publishFile } from './files.ts'
import { compareKeys } from './keys.ts'
import { openDatabase, openFrozenDatabase, storeFailure } from './sqlite-file.ts'
import { integer, octets, toRecord } from './sqlite-rows.ts'
import { type Sync, WalFlush } from './wal-flush.ts'
import { WriteGroup } from './write-group.ts'

const PRUNED_AT_ONCE = 1000
const MOST_VERSIONS = 10_000
// About a millisecond of copying, during which reads wait.
const PAGES_COPIED_AT_ONCE = 256

/**
 * Keeps records in a SQLite file that this process alone has open until the driver is disposed. `readOnly` opens a file that nobody
 * writes (a snapshot) without changing anything. `sync` makes a file durable. Throws `invalid` for a damaged or newer file,
 * `unavailable` for one in use.
 */
export function openSqliteDriver(
  file: string,
  { readOnly = false, sync }: { readOnly?: boolean; sync?: Sync } = {},
): StorageDriver {
  if (readOnly) return new SqliteDriver(openFrozenDatabase(file), undefined)
  const db = openDatabase(file)
  try {
    return new SqliteDriver(db, new WalFlush(file, sync))
  } catch (error) {
    db.close()
    throw fileFailure(error, 'open the log of', file)
  }
}

class SqliteDriver implements StorageDriver {
  readonly #db: DatabaseSync
  /** Undefined when the file is opened for reading only. */
  readonly #wal: WalFlush | undefined
  readonly #group: WriteGroup
  readonly #sql: ReturnType<typeof prepare>
  /** The last version and event given out: as the file says, and in the open transaction. */
  #kept: Numbers = { version: 0, event: 0 }
  #given = this.#kept
  /** By the open transaction, and by those that were committed since the last flush began. */
  #changes = noChanges()
  #unflushed = noChanges()
  /** Versions that were asked for, so that who looks whether a record is still the same costs no read of the file. */
  readonly #versions = new Map<string, number>()
  #snapshots: Promise<unknown> = Promise.resolve()

  constructor(db: DatabaseSync, wal: WalFlush | undefined) {
    this.#db = db
    this.#wal = wal
    this.#sql = prepare(db)
    this.#group = new WriteGroup(db, {
      begin: () => this.#begin(),
      end: () => this.#keepCounter(),
      committed: () => this.#committed(),
      undone: (error) => {
        this.#versions.clear()
        return explain(error)
      },
      flush: () => this.#flush(),
    })
  }

  get failed(): Promise<unknown> | undefined {
    return this.#wal?.failed
  }

  async get(key: string): Promise<DriverRecord | undefined> {
    const found = this.#read(() => {
      const row = this.#sql.get.get(key)
      return row && toRecord(row)
    })
    await this.#wal?.durable(key)
    return found
  }

  async version(key: string): Promise<number> {
    const version = this.#read(() => this.#versionOf(key))
    await this.#wal?.durable(key)
    return version
  }

  async list(prefix: string, { after, limit }: { after?: string; limit: number }): Promise<DriverRecord[]> {
    const end = endOfPrefix(prefix)
    const found = this.#read(() => {
      const isAfterStart = after !== undefined && compareKeys(after, prefix) >= 0
      return (isAfterStart ? this.#sql.listAfter : this.#sql.listFrom)
        .all(isAfterStart ? after : prefix, end, limit)
        .map(toRecord)
    })
    await this.#wal?.allDurable()
    return found
  }

  commit(changes: readonly DriverChange[]): Promise<CommitResult> {
    const sizeBytes = changes.reduce((sum, change) => sum + ('value' in change ? change.value.length : 0), 0)
    return this.#write(sizeBytes, () => this.#apply(changes))
  }

  claim(queue: string, { now, until, limit }: { now: Date; until: Date; limit: number }): Promise<ClaimedRecord[]> {
    return this.#write(0, () => {
      const rows = this.#sql.due.all(queue, now.getTime(), limit)
      const [before] = this.#reserve(rows.length, 0)
      return rows.map((row, i) => {
        const record = toRecord(row)
        const version = before + 1 + i
        this.#sql.move.run(version, until.getTime(), record.key)
        this.#wrote(record.key, version)
        return { ...record, version, due: { queue, at: until }, overdueSince: new Date(integer(row['due'])) }
      })
    })
  }

  /** Tells also what is not durable yet: it only says when to look. */
  async nextDue(queue: string): Promise<Date | undefined> {
    return this.#read(() => {
      const row = this.#sql.nextDue.get(queue)
      return row && new Date(integer(row['due']))
    })
  }

  async events(after: number, limit: number): Promise<{ events: DriverEvent[]; firstKept: number; last: number }> {
    const found = this.#read(() => {
      const last = this.#lastEvent()
      return {
        events: this.#sql.events.all(after, limit).map((row) => ({
          number: integer(row['number']),
          time: new Date(integer(row['time'])),
          value: octets(row['value']),
        })),
        firstKept: this.#firstEvent() ?? last + 1,
        last,
      }
    })
    await this.#wal?.allDurable()
    return found
  }

  async pruneEvents({ before, keep }: { before: Date; keep: number }): Promise<void> {
    // In small steps, so that a long backlog never holds up other writes.
    for (let forgotten = PRUNED_AT_ONCE; forgotten === PRUNED_AT_ONCE; ) {
      forgotten = await this.#write(0, () => {
        const firstKept = this.#lastEvent() + 1 - keep
        const oldest = this.#sql.oldestEvents.all(PRUNED_AT_ONCE)
        const young = oldest.findIndex((row) => integer(row['time']) >= before.getTime())
        const kept = oldest.findIndex((row) => integer(row['number']) >= firstKept)
        const gone = young < 0 || kept < 0 ? oldest.length : Math.max(young, kept)
        const last = oldest[gone - 1]
        if (!last) return 0
        this.#changes.isAny = true
        return Number(this.#sql.forgetEvents.run(integer(last['number'])).changes)
      })
    }
  }

  snapshot(file: string): Promise<void> {
    const copied = this.#snapshots.then(() => this.#copyTo(file))
    this.#snapshots = copied.catch(() => undefined)
    return copied
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#group.close(), this.#snapshots])
    if (!this.#db.isOpen) return
    this.#wal?.close()
    this.#db.close()
  }

  async #copyTo(file: string): Promise<void> {
    if (!this.#db.isOpen) throw unavailable('the store is closed')
    this.#wal?.requireWhole()
    if (existsSync(file)) throw alreadyThere(file)
    // It gets its name when it is complete: a server that is killed leaves nothing that looks like a backup. Snapshots go one after the other, so
    // what is found under this name was left by such a one.
    const partial = `${file}.keyturn-partial`
    try {
      rmSync(partial, { force: true })
      createPrivateFile(partial)
      await this.#backUpTo(partial)
      // It may hold what is not durable here yet.
      await this.#wal?.allDurable()
      await flushFile(partial)
      publishFile(partial, file)
    } catch (error) {
      rmSync(partial, { force: true })
      const failure = storeFailure(error, `the backup ${file}`)
      throw failure instanceof AppError ? failure : fileFailure(failure, 'write the backup', file)
    }
  }

  /** The copy runs on another thread and fails when it meets an open transaction, so groups run between its steps. */
  async #backUpTo(file: string): Promise<void> {
    this.#group.hold()
    try {
      await backup(this.#db, file, { rate: PAGES_COPIED_AT_ONCE, progress: () => this.#group.turn() })
    } finally {
      this.#group.release()
    }
  }

  #apply(changes: readonly DriverChange[]): CommitResult {
    for (const change of changes) {
      if (change.type === 'event' || change.expected === 'any') continue
      if (this.#versionOf(change.key) !== change.expected) throw new VersionConflict(change.key)
    }
    const versions = new Map<string, number>()
    let [version, event] = this.#reserve(
      changes.filter(({ type }) => type === 'put').length,
      changes.filter(({ type }) => type === 'event').length,
    )
    for (const change of changes) {
      switch (change.type) {
        case 'put': {
          version += 1
          this.#sql.put.run(
            change.key,
            version,
            change.value,
            change.due?.queue ?? null,
            change.due?.at.getTime() ?? null,
          )
          this.#wrote(change.key, version)
          versions.set(change.key, version)
          break
        }
        case 'delete':
          this.#sql.delete.run(change.key)
          this.#wrote(change.key, 0)
          break
        case 'event':
          event += 1
          this.#changes.isAny = true
          this.#sql.append.run(event, change.time.getTime(), change.value)
          break
        case 'check':
          break
        default:
          change satisfies never
      }
    }
    return { versions }
  }

  #versionOf(key: string): number {
    const known = this.#versions.get(key)
    if (known !== undefined) return known
    const row = this.#sql.version.get(key)
    const version = row ? integer(row['version']) : 0
    this.#remember(key, version)
    return version
  }

  #wrote(key: string, version: number): void {
    this.#changes.keys.add(key)
    this.#changes.isAny = true
    this.#remember(key, version)
  }

  #committed(): void {
    for (const key of this.#changes.keys) this.#unflushed.keys.add(key)
    this.#unflushed.isAny ||= this.#changes.isAny
  }

  #flush(): Promise<void> | undefined {
    const { keys, isAny } = this.#unflushed
    if (!isAny) return undefined
    this.#unflushed = noChanges()
    return this.#wal?.run(keys)
  }

  #remember(key: string, version: number): void {
    if (this.#versions.size >= MOST_VERSIONS) this.#versions.clear()
    this.#versions.set(key, version)
  }

  /** Takes so many version and event numbers; returns those before the first of them. */
  #reserve(versions: number, events: number): [version: number, event: number] {
    const { version, event } = this.#given
    if (versions + events > 0) this.#given = { version: version + versions, event: event + events }
    return [version, event]
  }

  #begin(): void {
    this.#wal?.requireWhole()
    this.#changes = noChanges()
    const row = this.#sql.counter.get()
    this.#kept = { version: integer(row?.['version']), event: integer(row?.['event']) }
    this.#given = this.#kept
  }

  #keepCounter(): void {
    if (this.#given !== this.#kept) this.#sql.count.run(this.#given.version, this.#given.event)
  }

  #lastEvent(): number {
    return integer(this.#sql.lastEvent.get()?.['event'])
  }

  #firstEvent(): number | undefined {
    const row = this.#sql.firstEvent.get()
    return row && integer(row['number'])
  }

  #read<T>(work: () => T): T {
    if (!this.#db.isOpen) throw unavailable('the store is closed')
    this.#wal?.requireWhole()
    try {
      return work()
    } catch (error) {
      throw explain(error)
    }
  }

  #write<T>(sizeBytes: number, work: () => T): Promise<T> {
    if (!this.#wal) return Promise.reject(unavailable('the store is opened for reading only; nothing was changed'))
    return this.#group.run(sizeBytes, work)
  }
}

interface Changes {
  readonly keys: Set<string>
  isAny: boolean
}

const noChanges = (): Changes => ({ keys: new Set(), isAny: false })

interface Numbers {
  readonly version: number
  readonly event: number
}

function explain(error: unknown): unknown {
  return storeFailure(error, 'the store')
}

function prepare(db: DatabaseSync) {
  const fields = 'SELECT key, version, value, queue, due FROM record'
  const statement = (sql: string): StatementSync => db.prepare(sql)
  return {
    get: statement(`${fields} WHERE key = ?`),
    version: statement('SELECT version FROM record WHERE key = ?'),
    listFrom: statement(`${fields} WHERE key >= ? AND key < CAST(? AS TEXT) ORDER BY key LIMIT ?`),
    listAfter: statement(`${fields} WHERE key > ? AND key < CAST(? AS TEXT) ORDER BY key LIMIT ?`),
    due: statement(`${fields} WHERE queue = ? AND due <= ? ORDER BY due LIMIT ?`),
    nextDue: statement('SELECT due FROM record WHERE queue = ? ORDER BY due LIMIT 1'),
    move: statement('UPDATE record SET version = ?, due = ? WHERE key = ?'),
    put: statement(
      `INSERT INTO record (key, version, value, queue, due) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = excluded.value, queue = excluded.queue, due = excluded.due`,
    ),
    delete: statement('DELETE FROM record WHERE key = ?'),
    counter: statement('SELECT version, event FROM counter'),
    count: statement('UPDATE counter SET version = ?, event = ?'),
    lastEvent: statement('SELECT event FROM counter'),
    firstEvent: statement('SELECT number FROM event ORDER BY number LIMIT 1'),
    oldestEvents: statement('SELECT number, time FROM event ORDER BY number LIMIT ?'),
    events: statement('SELECT number, time, value FROM event WHERE number > ? ORDER BY number LIMIT ?'),
    append: statement('INSERT INTO event (number, time, value) VALUES (?, ?, ?)'),
    forgetEvents: statement('DELETE FROM event WHERE number <= ?'),
  }
}

/** The first octets that sort after every key with this prefix. UTF-8 holds no octet 0xff, so the last one can be raised. */
function endOfPrefix(prefix: string): Uint8Array {
  const end = Buffer.from(prefix)
  if (end.length === 0) return Buffer.from([0xff])
  end[end.length - 1] = (end[end.length - 1] ?? 0) + 1
  return end
}
