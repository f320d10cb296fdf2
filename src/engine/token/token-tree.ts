import type { Clock } from '../../lib/clock.ts'
import { messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Worker } from '../../lib/worker.ts'
import { VersionConflict } from '../storage/driver.ts'
import { type Change, put, remove, type Store } from '../storage/store.ts'
import { accessorKind, childKind, dueOf, EXPIRY_QUEUE, type TokenRecord, tokenKind } from './token-record.ts'

/**
 * The end of tokens. Order: mark the token dead (from here nobody uses it, nor makes a child of it), then mark its children, then
 * remove its records. A child hangs on its parent until all that stems from it is gone: whoever ends the same token at the same time finds
 * what is left to do, and is not told too early that all is done. A marked token is due soon after, so when the work stops with its
 * process the worker takes it over; doing a step twice changes nothing.
 */
export interface TokenTree {
  /** Ends a token and all that stem from it, also where somebody else has begun to. */
  revoke(key: string): Promise<void>
  /** Ends a token; its children become orphans. */
  revokeOrphaning(key: string): Promise<void>
  readonly worker: Worker
}

const PAGE = 100
const CLAIM_MS = 60_000
/** So long whoever marked a token is left alone with it. */
const ALONE_MS = 10_000
/** Another server's tokens may be due earlier than what was seen here. */
const LOOK_MS = 5_000

export function createTokenTree(deps: {
  readonly store: Store
  readonly clock: Clock
  readonly log: Logger
}): TokenTree {
  const { store, clock, log } = deps

  /** Marks a token as dead if `when` says so; its record as it is then, or undefined where there is nothing to end. */
  async function mark(
    key: string,
    state: 'revoked' | 'orphaning',
    when: (record: TokenRecord) => boolean,
  ): Promise<TokenRecord | undefined> {
    for (;;) {
      const stored = await store.read(tokenKind, key)
      if (!stored || isDead(stored.value)) return stored?.value
      if (!when(stored.value)) return undefined
      const record = ended(stored.value, state)
      try {
        await store.commit([put(tokenKind, key, record, { expected: stored.version, ...dueOf(record) })])
        return record
      } catch (error) {
        if (!(error instanceof VersionConflict)) throw error
      }
    }
  }

  function ended(record: TokenRecord, state: 'revoked' | 'orphaning'): TokenRecord {
    return { ...record, state, endsAt: new Date(clock.now().getTime() + ALONE_MS) }
  }

  /** Brings a dead token and all that stem from it to an end. */
  async function finish(first: string, record: TokenRecord): Promise<void> {
    const left: Dead[] = [{ key: first, record }]
    for (let next = left.at(-1); next; next = left.at(-1)) {
      const page = await store.keys(childKind, `${next.key}/`, { limit: PAGE })
      if (page.length > 0) {
        // These go first, so that what waits here is a page for each generation and not a whole family.
        left.push(...(await withoutLeaves(await part(page, next.record.state === 'orphaning'))))
        continue
      }
      left.pop()
      await store.commit(removal(next))
    }
  }

  /** Removes those of some dead tokens that have no children (nor can get any more), in one commit; returns the others. */
  async function withoutLeaves(dead: readonly Dead[]): Promise<Dead[]> {
    const parents: Dead[] = []
    const changes: Change[] = []
    for (const one of dead) {
      const [child] = await store.keys(childKind, `${one.key}/`, { limit: 1 })
      if (child !== undefined) parents.push(one)
      else changes.push(...removal(one))
    }
    if (changes.length > 0) await store.commit(changes)
    return parents
  }

  /** Ends a page of children: each becomes an orphan, or is marked dead and returned. */
  async function part(page: readonly string[], orphaning: boolean): Promise<Dead[]> {
    for (;;) {
      const changes: Change[] = []
      const dead: Dead[] = []
      for (const link of page) {
        const key = link.slice(link.indexOf('/') + 1)
        const child = await store.read(tokenKind, key)
        if (!child || orphaning) changes.push(remove(childKind, link, { expected: 'any' }))
        if (!child) continue
        const record = orphaning ? orphanOf(child.value) : ended(child.value, 'revoked')
        if (orphaning || !isDead(child.value))
          changes.push(put(tokenKind, key, record, { expected: child.version, ...dueOf(record) }))
        if (!orphaning) dead.push({ key, record: isDead(child.value) ? child.value : record })
      }
      try {
        if (changes.length > 0) await store.commit(changes)
        return dead
      } catch (error) {
        // A child was used, renewed or revoked at this moment: look again.
        if (!(error instanceof VersionConflict)) throw error
      }
    }
  }

  async function end(key: string, state: 'revoked' | 'orphaning', when = (_: TokenRecord) => true): Promise<void> {
    const record = await mark(key, state, when)
    if (record) await finish(key, record)
  }

  /** A token that another server has just renewed stays. */
  function isOver(record: TokenRecord): boolean {
    const at = dueOf(record).due?.at
    return at !== undefined && at <= clock.now()
  }

  return {
    revoke: (key) => end(key, 'revoked'),
    revokeOrphaning: (key) => end(key, 'orphaning'),
    worker: {
      name: EXPIRY_QUEUE,
      async tick() {
        const now = clock.now()
        const until = new Date(now.getTime() + CLAIM_MS)
        const due = await store.claim(tokenKind, EXPIRY_QUEUE, { now, until, limit: PAGE })
        await Promise.all(
          due.map(({ key, value }) =>
            end(key, 'revoked', isOver).catch((error: unknown) => {
              log.error(
                { accessor: value.accessor, why: messageOf(error) },
                'a token could not be revoked; it is tried again',
              )
            }),
          ),
        )
        if (due.length === PAGE) return 0
        const next = await store.nextDue(EXPIRY_QUEUE)
        return next ? Math.min(LOOK_MS, Math.max(50, next.getTime() - clock.now().getTime())) : LOOK_MS
      },
    },
  }
}

function orphanOf({ parentKey: _, ...rest }: TokenRecord): TokenRecord {
  return { ...rest, orphan: true }
}

interface Dead {
  readonly key: string
  readonly record: TokenRecord
}

function removal({ key, record: { accessor, parentKey } }: Dead): Change[] {
  return [
    remove(tokenKind, key, { expected: 'any' }),
    remove(accessorKind, accessor, { expected: 'any' }),
    ...(parentKey === undefined ? [] : [remove(childKind, `${parentKey}/${key}`, { expected: 'any' })]),
  ]
}

/** Marked: nobody may use it any more. */
export function isDead(record: TokenRecord): boolean {
  return record.state === 'revoked' || record.state === 'orphaning'
}
