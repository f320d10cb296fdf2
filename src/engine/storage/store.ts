import * as z from 'zod'
import type { Clock } from '../../lib/clock.ts'
import { Secret } from '../../lib/secret.ts'
import type { Barrier } from '../seal/barrier.ts'
import { isDamage, KEYRING } from '../seal/keyring.ts'
import type { DriverChange, DriverEvent, DriverRecord, Due, Expected, StorageDriver } from './driver.ts'
import { type EngineEvent, eventCodec, type NewEvent } from './event.ts'

const MOST_REMEMBERED = 200

/**
 * The engine's memory: small documents with a key, a version and at most one due time, sealed before they reach the driver.
 *
 * A kind of record is declared once with `recordKind`, its codec a zod codec from JSON. Every change goes through `commit`: all of
 * its parts happen or none, and an event in it is published exactly when the change is durable.
 */
export class Store {
  readonly #driver: StorageDriver
  readonly #barrier: Barrier
  readonly #clock: Clock
  readonly #onDamage: (error: Error) => void
  readonly #listeners = new Set<() => void>()
  /** The least recently read first. */
  readonly #remembered = new Map<string, Stored<unknown>>()

  /** `onDamage` is told what was left out where the rest had to go on. */
  constructor(
    driver: StorageDriver,
    barrier: Barrier,
    clock: Clock,
    onDamage: (error: Error) => void = () => undefined,
  ) {
    this.#driver = driver
    this.#barrier = barrier
    this.#clock = clock
    this.#onDamage = onDamage
  }

  async read<T>(kind: RecordKind<T>, key: string): Promise<Stored<T> | undefined> {
    const record = await this.#driver.get(kind.prefix + key)
    return record && this.#open(kind, record)
  }

  /** Like `read`, but leaves out a damaged record: for work on many that must not end at one. */
  async readUndamaged<T>(kind: RecordKind<T>, key: string): Promise<Stored<T> | undefined> {
    const record = await this.#driver.get(kind.prefix + key)
    return record && this.#unlessDamaged(() => this.#open(kind, record))
  }

  /** Like `read`, but does not read the record again when it still has the version that the caller knows. */
  async readUnless<T>(
    kind: RecordKind<T>,
    key: string,
    known: number | undefined,
  ): Promise<Stored<T> | 'unchanged' | undefined> {
    if (known !== undefined && (await this.#driver.version(kind.prefix + key)) === known) return 'unchanged'
    return this.read(kind, key)
  }

  /**
   * Like `read`, for the few records that nearly every request reads: the document is kept, opened and decoded, and given again while its
   * version is the same. It must not be changed by who reads it.
   */
  async readRemembered<T>(kind: RecordKind<T>, key: string): Promise<Stored<T> | undefined> {
    const known = this.#remembered.get(kind.prefix + key)
    const found = await this.readUnless(kind, key, known?.version)
    this.#remembered.delete(kind.prefix + key)
    // What is kept under a kind's prefix was read as that kind.
    const stored = found === 'unchanged' ? (known as Stored<T>) : found
    if (stored) this.#remembered.set(kind.prefix + key, stored)
    const oldest = this.#remembered.keys().next()
    if (this.#remembered.size > MOST_REMEMBERED && !oldest.done) this.#remembered.delete(oldest.value)
    return stored
  }

  /** Calls back after each commit that published events, until the returned function is called. */
  onPublish(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Records of a kind whose key begins with `prefix`, in key order, `limit` at a time (pass the last key as `after`). */
  async list<T>(kind: RecordKind<T>, prefix: string, options: { after?: string; limit: number }): Promise<Stored<T>[]> {
    const records = await this.#driver.list(kind.prefix + prefix, {
      limit: options.limit,
      ...(options.after !== undefined && { after: kind.prefix + options.after }),
    })
    return records.map((record) => this.#open(kind, record))
  }

  /** The keys that `list` would give, without opening what stands under them: also those of damaged records. */
  async keys(
    kind: { readonly prefix: string },
    prefix: string,
    { after, limit }: { after?: string; limit: number },
  ): Promise<string[]> {
    const options = { limit, ...(after !== undefined && { after: kind.prefix + after }) }
    return (await this.#driver.list(kind.prefix + prefix, options)).map(({ key }) => key.slice(kind.prefix.length))
  }

  /**
   * The immediate children below a folder of a hierarchy of names (`''` or `a/b/`): leaf names as they are, folders with a trailing
   * slash, sorted. Costs one read per child, however many names lie deeper.
   */
  async children(kind: { readonly prefix: string }, folder: string): Promise<string[]> {
    const base = kind.prefix + folder
    const names: string[] = []
    for (let after: string | undefined; ; ) {
      const page = await this.#driver.list(base, { limit: 100, ...(after !== undefined && { after }) })
      if (page.length === 0) return names
      for (const { key } of page) {
        const folderBefore = names.at(-1)
        if (folderBefore?.endsWith('/') && key.startsWith(base + folderBefore)) continue
        const rest = key.slice(base.length)
        const slash = rest.indexOf('/')
        if (slash < 0) {
          names.push(rest)
          after = key
        } else {
          names.push(rest.slice(0, slash + 1))
          // '0' is the octet after '/': everything inside the folder sorts before it.
          after = `${base + rest.slice(0, slash)}/\u{10ffff}`
        }
      }
    }
  }

  /** Applies all changes or none; throws `VersionConflict`. Returns the new version of each put record by its key (without the kind's prefix). */
  async commit(changes: readonly Change[]): Promise<ReadonlyMap<string, number>> {
    const plain: DriverChange[] = changes.map((change) => {
      switch (change.type) {
        case 'put': {
          const key = change.kind.prefix + change.key
          const value = this.#barrier.seal(key, Buffer.from(JSON.stringify(change.encoded)))
          return { type: 'put', key, value, expected: change.expected, ...(change.due && { due: change.due }) }
        }
        case 'delete':
        case 'check':
          return { ...change, key: change.kind.prefix + change.key }
        case 'event': {
          const body = JSON.stringify(z.encode(eventCodec, change.event))
          return { type: 'event', time: this.#clock.now(), value: this.#barrier.seal('event', Buffer.from(body)) }
        }
        default:
          return change satisfies never
      }
    })
    const { versions } = await this.#driver.commit(plain)
    if (plain.some((change) => change.type === 'event')) for (const listener of this.#listeners) listener()
    return new Map(
      changes.flatMap((c) => (c.type === 'put' ? [[c.key, versions.get(c.kind.prefix + c.key) ?? 0] as const] : [])),
    )
  }

  /**
   * See `StorageDriver.claim`; the claim ends at `until` unless a commit moves the due time before. What is damaged is left out, and comes
   * again only then.
   */
  async claim<T>(
    kind: RecordKind<T>,
    queue: string,
    options: { now: Date; until: Date; limit: number },
  ): Promise<(Stored<T> & { overdueSince: Date })[]> {
    const records = await this.#driver.claim(queue, options)
    return records.flatMap(
      (record) => this.#unlessDamaged(() => ({ ...this.#open(kind, record), overdueSince: record.overdueSince })) ?? [],
    )
  }

  /** Claims records without opening them; returns their keys. */
  async claimKeys(
    kind: { readonly prefix: string },
    queue: string,
    options: { now: Date; until: Date; limit: number },
  ): Promise<string[]> {
    const records = await this.#driver.claim(queue, options)
    return records.map(({ key }) => key.slice(kind.prefix.length))
  }

  nextDue(queue: string): Promise<Date | undefined> {
    return this.#driver.nextDue(queue)
  }

  /** See `StorageDriver.events`; the damaged ones are left out and named by their numbers. */
  async events(
    after: number,
    limit: number,
  ): Promise<{ events: EngineEvent[]; damaged: number[]; firstKept: number; last: number }> {
    const { events: found, ...rest } = await this.#driver.events(after, limit)
    const events: EngineEvent[] = []
    const damaged: number[] = []
    for (const one of found) {
      const event = this.#unlessDamaged(() => this.#openEvent(one))
      if (event) events.push(event)
      else damaged.push(one.number)
    }
    return { ...rest, events, damaged }
  }

  pruneEvents(options: { before: Date; keep: number }): Promise<void> {
    return this.#driver.pruneEvents(options)
  }

  snapshot(file: string): Promise<void> {
    return this.#driver.snapshot(file)
  }

  /** Opens every record; throws at the first that is damaged. */
  async requireWhole(): Promise<void> {
    for (let after: string | undefined; ; ) {
      const page = await this.#driver.list('', { limit: 500, ...(after !== undefined && { after }) })
      for (const { key, value } of page) if (key !== KEYRING) this.#barrier.open(key, value)
      after = page.at(-1)?.key
      if (after === undefined) return
    }
  }

  #unlessDamaged<T>(open: () => T): T | undefined {
    try {
      return open()
    } catch (error) {
      if (!isDamage(error)) throw error
      this.#onDamage(error)
      return undefined
    }
  }

  #openEvent({ number, time, value }: DriverEvent): EngineEvent {
    const body = JSON.parse(this.#barrier.open('event', value).toString('utf8'))
    return { number, time, ...z.decode(eventCodec, body) }
  }

  #open<T>(kind: RecordKind<T>, record: DriverRecord): Stored<T> {
    const plain = JSON.parse(this.#barrier.open(record.key, record.value).toString('utf8'))
    return {
      key: record.key.slice(kind.prefix.length),
      version: record.version,
      value: z.decode(kind.codec, plain),
      ...(record.due && { due: record.due }),
    }
  }
}

export interface Stored<T> {
  readonly key: string
  readonly value: T
  readonly version: number
  readonly due?: Due
}

/** A kind of record: where its keys live and how its documents are written. The prefix ends with a slash. */
export interface RecordKind<T> {
  readonly prefix: string
  // biome-ignore lint/suspicious/noExplicitAny: the JSON side of a codec is whatever the schema says; only zod reads it
  readonly codec: z.ZodType<T, any>
}

export function recordKind<S extends z.ZodType>(prefix: string, codec: S): RecordKind<z.output<S>> {
  return { prefix, codec } as RecordKind<z.output<S>>
}

export type Change =
  | {
      readonly type: 'put'
      readonly kind: { readonly prefix: string }
      readonly key: string
      readonly encoded: unknown
      readonly expected: Expected
      readonly due?: Due
    }
  | {
      readonly type: 'delete'
      readonly kind: { readonly prefix: string }
      readonly key: string
      readonly expected: Expected
    }
  | {
      readonly type: 'check'
      readonly kind: { readonly prefix: string }
      readonly key: string
      readonly expected: number
    }
  | { readonly type: 'event'; readonly event: NewEvent }

/** Writes a document; `expected` is the version read before, 0 for a new one, or 'any'. Without `due` the record is due never. */
export function put<T>(kind: RecordKind<T>, key: string, value: T, options: { expected: Expected; due?: Due }): Change {
  return {
    type: 'put',
    kind,
    key,
    encoded: z.encode(kind.codec, value),
    expected: options.expected,
    ...(options.due && { due: options.due }),
  }
}
export function remove(kind: { readonly prefix: string }, key: string, options: { expected: Expected }): Change {
  return { type: 'delete', kind, key, expected: options.expected }
}
/** The commit happens only if the record still has this version (0: is absent). */
export function check(kind: { readonly prefix: string }, key: string, expected: number): Change {
  return { type: 'check', kind, key, expected }
}
export function publish(event: NewEvent): Change {
  return { type: 'event', event }
}

/** A `Secret` inside a stored document (the document is sealed as a whole). */
export const secretCodec = z.codec(z.string(), z.instanceof(Secret), {
  decode: (text) => new Secret(text),
  encode: (secret) => secret.reveal(),
})

/** An instant inside a stored document. */
export const instantCodec = z.codec(z.iso.datetime({ offset: true }), z.date(), {
  decode: (text) => new Date(text),
  encode: (date) => date.toISOString(),
})
