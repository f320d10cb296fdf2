/**
 * Where records are kept. A driver stores octets it cannot read (the store above it seals every value) and is one of memory,
 * SQLite or PostgreSQL; all pass `test/servers/storage-conformance`.
 *
 * A driver promises: a commit is atomic and durable when its promise resolves; versions of a record only grow and are never used
 * twice, also not after a delete; a reader sees every commit that resolved before the read began; event numbers follow the order
 * of commits without gaps; nothing is loaded in bulk at start. Keys sort by their UTF-8 octets.
 */
export interface StorageDriver extends AsyncDisposable {
  /** Resolves with the reason when the store can be neither read nor written any more until it is opened anew. */
  readonly failed?: Promise<unknown> | undefined
  get(key: string): Promise<DriverRecord | undefined>
  /** The version of a record without its value, 0 when it is absent. */
  version(key: string): Promise<number>
  /** Records whose key begins with `prefix` and sorts after `after`, in key order. */
  list(prefix: string, options: { after?: string; limit: number }): Promise<DriverRecord[]>
  /** Applies all changes or none. Throws `VersionConflict` when an expectation does not hold. */
  commit(changes: readonly DriverChange[]): Promise<CommitResult>
  /**
   * Takes up to `limit` records of a queue that are due at `now`, the most overdue first, by moving their due time to `until` and
   * raising their version, atomically: two callers never get the same record before `until`. Returns them as they are afterwards,
   * `overdueSince` being the due time before.
   */
  claim(queue: string, options: { now: Date; until: Date; limit: number }): Promise<ClaimedRecord[]>
  /** When the next record of a queue is due; `undefined` when none is. */
  nextDue(queue: string): Promise<Date | undefined>
  /** Events with a number above `after`, in order. `firstKept` is the smallest number still kept (or to come next). */
  events(after: number, limit: number): Promise<{ events: DriverEvent[]; firstKept: number; last: number }>
  /** Forgets events older than `before` and all but the newest `keep`. */
  pruneEvents(options: { before: Date; keep: number }): Promise<void>
  /** Writes a consistent copy of everything to a new file while running; refuses (invalid) an existing file. */
  snapshot(file: string): Promise<void>
}

export interface DriverRecord {
  readonly key: string
  readonly version: number
  readonly value: Uint8Array
  readonly due?: Due
}
export interface ClaimedRecord extends DriverRecord {
  readonly overdueSince: Date
}

/** A record is due in at most one queue. */
export interface Due {
  readonly queue: string
  readonly at: Date
}

/** What must be true of a record for the commit to happen: its version, 0 for "absent", or 'any'. */
export type Expected = number | 'any'

export type DriverChange =
  | {
      readonly type: 'put'
      readonly key: string
      readonly value: Uint8Array
      readonly expected: Expected
      readonly due?: Due
    }
  | { readonly type: 'delete'; readonly key: string; readonly expected: Expected }
  | { readonly type: 'check'; readonly key: string; readonly expected: number }
  | { readonly type: 'event'; readonly time: Date; readonly value: Uint8Array }

export interface DriverEvent {
  readonly number: number
  readonly time: Date
  readonly value: Uint8Array
}

export interface CommitResult {
  /** The new version of each put record, by key. */
  readonly versions: ReadonlyMap<string, number>
}

/** Somebody else changed the record first. Callers read again and decide anew; it never reaches a user. */
export class VersionConflict extends Error {
  readonly key: string
  constructor(key: string) {
    super(`the record ${key} was changed by somebody else`)
    this.name = 'VersionConflict'
    this.key = key
  }
}
