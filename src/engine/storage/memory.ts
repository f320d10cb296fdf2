import {
  type ClaimedRecord,
  type CommitResult,
  type DriverChange,
  type DriverEvent,
  type DriverRecord,
  type StorageDriver,
  VersionConflict,
} from './driver.ts'
import { alreadyThere, createPrivateFile } from './files.ts'
import { compareKeys } from './keys.ts'
import { openDatabase } from './sqlite-file.ts'

/** Keeps records in memory only, for tests and trials. A snapshot of it is a SQLite file like any other. */
export function createMemoryDriver(): StorageDriver {
  return new MemoryDriver()
}

class MemoryDriver implements StorageDriver {
  readonly #records = new Map<string, DriverRecord>()
  /** The keys of the records, sorted. */
  readonly #keys: string[] = []
  #events: DriverEvent[] = []
  #lastVersion = 0
  #lastEvent = 0

  async get(key: string): Promise<DriverRecord | undefined> {
    return this.#records.get(key)
  }

  async version(key: string): Promise<number> {
    return this.#records.get(key)?.version ?? 0
  }

  async list(prefix: string, { after, limit }: { after?: string; limit: number }): Promise<DriverRecord[]> {
    const isAfterStart = after !== undefined && compareKeys(after, prefix) >= 0
    let at = this.#position(isAfterStart ? after : prefix)
    if (isAfterStart && this.#keys[at] === after) at += 1
    const found: DriverRecord[] = []
    for (; found.length < limit; at++) {
      const record = this.#records.get(this.#keys[at] ?? '')
      if (!record?.key.startsWith(prefix)) break
      found.push(record)
    }
    return found
  }

  async commit(changes: readonly DriverChange[]): Promise<CommitResult> {
    for (const change of changes) {
      if (change.type === 'event' || change.expected === 'any') continue
      if ((this.#records.get(change.key)?.version ?? 0) !== change.expected) throw new VersionConflict(change.key)
    }
    const versions = new Map<string, number>()
    for (const change of changes) {
      switch (change.type) {
        case 'put': {
          const { key, due } = change
          this.#put({ key, version: ++this.#lastVersion, value: Buffer.from(change.value), ...(due && { due }) })
          versions.set(key, this.#lastVersion)
          break
        }
        case 'delete':
          if (this.#records.delete(change.key)) this.#keys.splice(this.#position(change.key), 1)
          break
        case 'event':
          this.#events.push({ number: ++this.#lastEvent, time: change.time, value: Buffer.from(change.value) })
          break
        case 'check':
          break
        default:
          change satisfies never
      }
    }
    return { versions }
  }

  async claim(
    queue: string,
    { now, until, limit }: { now: Date; until: Date; limit: number },
  ): Promise<ClaimedRecord[]> {
    return this.#queued(queue)
      .filter(({ at }) => at <= now)
      .slice(0, limit)
      .map(({ record, at }) => {
        const claimed = { ...record, version: ++this.#lastVersion, due: { queue, at: until } }
        this.#put(claimed)
        return { ...claimed, overdueSince: at }
      })
  }

  async nextDue(queue: string): Promise<Date | undefined> {
    return this.#queued(queue)[0]?.at
  }

  async events(after: number, limit: number): Promise<{ events: DriverEvent[]; firstKept: number; last: number }> {
    const events = this.#events.filter(({ number }) => number > after).slice(0, limit)
    return { events, firstKept: this.#events[0]?.number ?? this.#lastEvent + 1, last: this.#lastEvent }
  }

  async pruneEvents({ before, keep }: { before: Date; keep: number }): Promise<void> {
    const firstYoung = this.#events.findIndex(({ time }) => time >= before)
    const old = firstYoung < 0 ? this.#events.length : firstYoung
    this.#events = this.#events.slice(Math.max(old, this.#events.length - keep))
  }

  async snapshot(file: string): Promise<void> {
    if (!createPrivateFile(file)) throw alreadyThere(file)
    const db = openDatabase(file)
    try {
      db.exec('BEGIN')
      const putRecord = db.prepare('INSERT INTO record (key, version, value, queue, due) VALUES (?, ?, ?, ?, ?)')
      for (const { key, version, value, due } of this.#records.values())
        putRecord.run(key, version, value, due?.queue ?? null, due?.at.getTime() ?? null)
      const putEvent = db.prepare('INSERT INTO event (number, time, value) VALUES (?, ?, ?)')
      for (const { number, time, value } of this.#events) putEvent.run(number, time.getTime(), value)
      db.prepare('UPDATE counter SET version = ?, event = ?').run(this.#lastVersion, this.#lastEvent)
      db.exec('COMMIT')
    } finally {
      db.close()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#records.clear()
    this.#keys.length = 0
  }

  #put(record: DriverRecord): void {
    if (!this.#records.has(record.key)) this.#keys.splice(this.#position(record.key), 0, record.key)
    this.#records.set(record.key, record)
  }

  /** Where `key` stands, or would stand, among the sorted keys. */
  #position(key: string): number {
    let low = 0
    let high = this.#keys.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (compareKeys(this.#keys[middle] ?? '', key) < 0) low = middle + 1
      else high = middle
    }
    return low
  }

  #queued(queue: string): { record: DriverRecord; at: Date }[] {
    return [...this.#records.values()]
      .flatMap((record) => (record.due?.queue === queue ? [{ record, at: record.due.at }] : []))
      .sort((a, b) => a.at.getTime() - b.at.getTime())
  }
}
