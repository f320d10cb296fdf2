import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type DriverChange,
  type Due,
  type Expected,
  type StorageDriver,
  VersionConflict,
} from '../../src/engine/storage/driver.ts'
import { openSqliteDriver } from '../../src/engine/storage/sqlite.ts'

const octets = (text: string) => Buffer.from(text)
const put = (key: string, text: string, expected: Expected = 'any', due?: Due): DriverChange => ({
  type: 'put',
  key,
  value: octets(text),
  expected,
  ...(due && { due }),
})
const at = (seconds: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, seconds))
const due = (queue: string, seconds: number): Due => ({ queue, at: at(seconds) })
const event = (text: string, seconds = 0): DriverChange => ({ type: 'event', time: at(seconds), value: octets(text) })
const text = (value: Uint8Array | undefined) => value && Buffer.from(value).toString()

/** What every storage driver must do; `open` gives an empty one in a directory of its own. */
export function testStorageDriver(name: string, open: (directory: string) => Promise<StorageDriver>): void {
  describe(`${name} storage`, () => {
    let directory: string
    let driver: StorageDriver

    beforeEach(async () => {
      directory = mkdtempSync(join(tmpdir(), 'kt-'))
      driver = await open(directory)
    })
    afterEach(async () => {
      await driver[Symbol.asyncDispose]()
      rmSync(directory, { recursive: true })
    })

    const keys = async (prefix: string, options: { after?: string; limit: number } = { limit: 1000 }) =>
      (await driver.list(prefix, options)).map(({ key }) => key)
    const allEvents = async () => (await driver.events(0, 1000)).events.map((e) => [e.number, text(e.value)])

    describe('records', () => {
      it('are absent until put, and then as they were put', async () => {
        expect(await driver.get('a')).toBeUndefined()
        expect(await driver.version('a')).toBe(0)
        const { versions } = await driver.commit([put('a', 'one', 0, due('q', 5))])
        expect(versions.get('a')).toBeGreaterThan(0)
        expect(await driver.version('a')).toBe(versions.get('a'))
        const { value, ...rest } = (await driver.get('a')) ?? {}
        expect(rest).toEqual({ key: 'a', version: versions.get('a'), due: due('q', 5) })
        expect(text(value)).toBe('one')
      })

      it('hold any octets, also none', async () => {
        const every = Uint8Array.from({ length: 256 }, (_, i) => i)
        await driver.commit([
          { type: 'put', key: 'every', value: every, expected: 0 },
          { type: 'put', key: 'none', value: new Uint8Array(), expected: 0 },
        ])
        expect(Buffer.from((await driver.get('every'))?.value ?? []).equals(every)).toBe(true)
        expect((await driver.get('none'))?.value.length).toBe(0)
      })

      it('lose their due time when put without one', async () => {
        await driver.commit([put('a', '1', 0, due('q', 5))])
        await driver.commit([put('a', '2')])
        expect(await driver.get('a')).not.toHaveProperty('due')
        expect(await driver.nextDue('q')).toBeUndefined()
      })

      it('do not change when the caller reuses its buffer', async () => {
        const value = octets('before')
        const done = driver.commit([{ type: 'put', key: 'a', value, expected: 0 }])
        await done
        value.fill('x')
        expect(text((await driver.get('a'))?.value)).toBe('before')
      })
    })

    describe('versions', () => {
      it('grow with every put and are not used again after a delete', async () => {
        const seen: number[] = []
        for (let i = 0; i < 3; i++) {
          seen.push((await driver.commit([put('a', `${i}`, 0)])).versions.get('a') ?? 0)
          seen.push((await driver.commit([put('a', `${i}`)])).versions.get('a') ?? 0)
          await driver.commit([{ type: 'delete', key: 'a', expected: 'any' }])
          expect(await driver.version('a')).toBe(0)
        }
        expect(seen.every((version, i) => i === 0 || version > (seen[i - 1] ?? 0))).toBe(true)
      })

      it.each<{ what: string; wrong: (version: number) => DriverChange }>([
        { what: 'put of a present record as new', wrong: () => put('a', 'x', 0) },
        { what: 'put at an older version', wrong: (version) => put('a', 'x', version - 1) },
        { what: 'put of an absent record as present', wrong: () => put('b', 'x', 1) },
        {
          what: 'delete at another version',
          wrong: (version) => ({ type: 'delete', key: 'a', expected: version + 1 }),
        },
        { what: 'check of another version', wrong: (version) => ({ type: 'check', key: 'a', expected: version + 1 }) },
        { what: 'check for absence', wrong: () => ({ type: 'check', key: 'a', expected: 0 }) },
      ])('refuse a $what, with all that was in the commit', async ({ wrong }) => {
        await driver.commit([put('a', '0')])
        const version = (await driver.commit([put('a', 'one'), event('kept')])).versions.get('a') ?? 0
        const refused = driver.commit([put('c', 'new', 0), event('lost'), wrong(version), put('d', 'new', 0)])
        await expect(refused).rejects.toThrow(VersionConflict)
        expect((await driver.get('a'))?.version).toBe(version)
        expect(await keys('')).toEqual(['a'])
        expect(await allEvents()).toEqual([[1, 'kept']])
      })

      it('let pass what is as expected', async () => {
        const version = (await driver.commit([put('a', 'one', 0)])).versions.get('a') ?? 0
        await driver.commit([
          { type: 'check', key: 'a', expected: version },
          { type: 'check', key: 'absent', expected: 0 },
          { type: 'delete', key: 'absent', expected: 'any' },
          put('a', 'two', version),
        ])
        expect(text((await driver.get('a'))?.value)).toBe('two')
      })

      it('let one of many concurrent writers win, the others changing nothing', async () => {
        const outcomes = await Promise.allSettled(
          Array.from({ length: 50 }, (_, i) =>
            driver.commit([put('a', `${i}`, 0), put(`mine/${i}`, ''), event(`${i}`)]),
          ),
        )
        const won = outcomes.flatMap((o, i) => (o.status === 'fulfilled' ? [`${i}`] : []))
        expect(won).toHaveLength(1)
        expect(text((await driver.get('a'))?.value)).toBe(won[0])
        expect(await keys('mine/')).toEqual([`mine/${won[0]}`])
        expect(await allEvents()).toEqual([[1, won[0]]])
      })

      it('count every increment of concurrent writers that read again after a conflict', async () => {
        await driver.commit([put('n', '0', 0)])
        const increment = async () => {
          for (;;) {
            const now = await driver.get('n')
            try {
              return await driver.commit([put('n', `${Number(text(now?.value)) + 1}`, now?.version ?? 0)])
            } catch (error) {
              if (!(error instanceof VersionConflict)) throw error
              await turn()
            }
          }
        }
        await Promise.all(Array.from({ length: 20 }, increment))
        expect(text((await driver.get('n'))?.value)).toBe('20')
      })
    })

    describe('listing', () => {
      it('gives a prefix in the order of UTF-8 octets, page by page', async () => {
        const names = ['a', 'a-b', 'a/b', 'a/b/c', 'a0', 'aé', 'a\u{ff21}', 'a\u{1f511}', 'b', 'A', 'a/%', 'a/_']
        await driver.commit(names.map((key) => put(key, key)))
        const sorted = names.toSorted((x, y) => Buffer.compare(octets(x), octets(y)))
        expect(await keys('')).toEqual(sorted)
        expect(await keys('a')).toEqual(sorted.filter((key) => key.startsWith('a')))
        expect(await keys('a/')).toEqual(['a/%', 'a/_', 'a/b', 'a/b/c'])
        const paged: string[] = []
        for (;;) {
          const page = await keys('a', { limit: 2, ...(paged.length > 0 && { after: paged.at(-1) ?? '' }) })
          if (page.length === 0) break
          expect(page.length).toBeLessThanOrEqual(2)
          paged.push(...page)
        }
        expect(paged).toEqual(await keys('a'))
      })

      it('starts after any key, also one that is absent, before or beyond the prefix', async () => {
        await driver.commit(['a/1', 'a/2', 'a/3', 'b'].map((key) => put(key, '')))
        expect(await keys('a/', { after: 'a/15', limit: 9 })).toEqual(['a/2', 'a/3'])
        expect(await keys('a/', { after: '', limit: 9 })).toEqual(['a/1', 'a/2', 'a/3'])
        expect(await keys('a/', { after: 'a/3', limit: 9 })).toEqual([])
        expect(await keys('a/', { after: 'z', limit: 9 })).toEqual([])
        expect(await keys('c', { limit: 9 })).toEqual([])
      })
    })

    describe('queues', () => {
      it('give what is due, the most overdue first, and hold it back until the claim ends', async () => {
        await driver.commit([
          put('late', '', 0, due('q', 30)),
          put('first', '', 0, due('q', 10)),
          put('second', '', 0, due('q', 20)),
          put('other', '', 0, due('r', 1)),
          put('never', '', 0),
        ])
        expect(await driver.nextDue('q')).toEqual(at(10))
        const before = (await driver.get('first'))?.version ?? 0
        const claimed = await driver.claim('q', { now: at(20), until: at(60), limit: 10 })
        expect(claimed.map(({ key, overdueSince }) => [key, overdueSince])).toEqual([
          ['first', at(10)],
          ['second', at(20)],
        ])
        expect(claimed[0]?.version).toBeGreaterThan(before)
        const { overdueSince: _, value, ...rest } = claimed[0] ?? { overdueSince: at(0), value: octets('') }
        const { value: stored, ...now } = (await driver.get('first')) ?? { value: undefined }
        expect(rest).toEqual(now)
        expect(text(value)).toEqual(text(stored))
        expect(now).toMatchObject({ due: due('q', 60) })
        expect(await driver.claim('q', { now: at(20), until: at(60), limit: 10 })).toEqual([])
        expect(await driver.nextDue('q')).toEqual(at(30))
        expect((await driver.claim('q', { now: at(60), until: at(90), limit: 10 })).map(({ key }) => key)).toEqual([
          'late',
          'first',
          'second',
        ])
      })

      it('never give a record to two concurrent claims', async () => {
        for (let i = 0; i < 100; i++) await driver.commit([put(`r/${i}`, '', 0, due('q', i % 10))])
        const claims = await Promise.all(
          Array.from({ length: 30 }, () => driver.claim('q', { now: at(10), until: at(60), limit: 7 })),
        )
        const taken = claims.flat().map(({ key }) => key)
        expect(taken).toHaveLength(100)
        expect(new Set(taken).size).toBe(100)
        expect(claims.every((claim) => claim.length <= 7)).toBe(true)
      })

      it('make a write at the version from before the claim fail', async () => {
        const version = (await driver.commit([put('a', '', 0, due('q', 1))])).versions.get('a') ?? 0
        await driver.claim('q', { now: at(1), until: at(9), limit: 1 })
        await expect(driver.commit([put('a', 'stale', version)])).rejects.toThrow(VersionConflict)
      })

      it('forget a record that is deleted or put into another queue', async () => {
        await driver.commit([put('a', '', 0, due('q', 1)), put('b', '', 0, due('q', 2))])
        await driver.commit([{ type: 'delete', key: 'a', expected: 'any' }, put('b', '', 'any', due('r', 3))])
        expect(await driver.nextDue('q')).toBeUndefined()
        expect(await driver.claim('q', { now: at(9), until: at(10), limit: 9 })).toEqual([])
        expect(await driver.nextDue('r')).toEqual(at(3))
      })
    })

    describe('events', () => {
      it('are numbered in the order of commits without gaps, also between refused commits', async () => {
        await driver.commit([put('taken', '', 0)])
        await Promise.allSettled(
          Array.from({ length: 40 }, (_, i) =>
            driver.commit(i % 3 === 0 ? [event(`lost ${i}`), put('taken', '', 0)] : [event(`${i}`), event(`${i}b`)]),
          ),
        )
        const { events, firstKept, last } = await driver.events(0, 1000)
        expect(events.map(({ number }) => number)).toEqual(Array.from({ length: 52 }, (_, i) => i + 1))
        expect(events.filter(({ value }) => text(value)?.startsWith('lost'))).toEqual([])
        expect([firstKept, last]).toEqual([1, 52])
      })

      it('are read from any number on, so many at a time', async () => {
        expect(await driver.events(0, 10)).toEqual({ events: [], firstKept: 1, last: 0 })
        await driver.commit([event('a', 1), event('b', 2), event('c', 3)])
        const { events, ...rest } = await driver.events(1, 1)
        expect(events.map(({ number, time, value }) => [number, time, text(value)])).toEqual([[2, at(2), 'b']])
        expect(rest).toEqual({ firstKept: 1, last: 3 })
        expect((await driver.events(3, 10)).events).toEqual([])
      })

      it('are forgotten by age and by count; numbers go on', async () => {
        for (let i = 1; i <= 10; i++) await driver.commit([event(`${i}`, i)])
        await driver.pruneEvents({ before: at(3), keep: 100 })
        expect(await driver.events(0, 1)).toMatchObject({ firstKept: 3, last: 10 })
        await driver.pruneEvents({ before: at(0), keep: 4 })
        expect(await driver.events(0, 1)).toMatchObject({ firstKept: 7, last: 10 })
        await driver.pruneEvents({ before: at(99), keep: 4 })
        expect(await driver.events(0, 1)).toEqual({ events: [], firstKept: 11, last: 10 })
        await driver.commit([event('next')])
        expect(await allEvents()).toEqual([[11, 'next']])
      })

      it('are forgotten up to the first young one only, also when the clock went back', async () => {
        for (const seconds of [1, 9, 2, 3]) await driver.commit([event('', seconds)])
        await driver.pruneEvents({ before: at(5), keep: 100 })
        expect((await driver.events(0, 9)).events.map(({ number }) => number)).toEqual([2, 3, 4])
      })

      it('are forgotten by count where the first is young, and no further', async () => {
        for (const seconds of [9, 1, 9, 2]) await driver.commit([event('', seconds)])
        await driver.pruneEvents({ before: at(5), keep: 3 })
        expect((await driver.events(0, 9)).events.map(({ number }) => number)).toEqual([2, 3, 4])
      })

      it('are forgotten by the thousands', async () => {
        await driver.commit(Array.from({ length: 2500 }, () => event('', 1)))
        await driver.pruneEvents({ before: at(5), keep: 10_000 })
        expect(await driver.events(0, 9)).toEqual({ events: [], firstKept: 2501, last: 2500 })
      })
    })

    describe('snapshot', () => {
      it('holds everything, is private, and goes on with the same numbers', async () => {
        await driver.commit([put('a', 'one', 0, due('q', 7)), put('gone', '', 0), event('x', 3)])
        await driver.commit([{ type: 'delete', key: 'gone', expected: 'any' }])
        const file = join(directory, 'copy.db')
        await driver.snapshot(file)
        expect(statSync(file).mode & 0o777).toBe(0o600)
        await using copy = openSqliteDriver(file)
        expect(await copy.list('', { limit: 9 })).toMatchObject(
          (await driver.list('', { limit: 9 })).map(({ key, version }) => ({ key, version, due: due('q', 7) })),
        )
        expect((await copy.events(0, 9)).events.map(({ number, time }) => [number, time])).toEqual([[1, at(3)]])
        const next = [put('a', 'two'), event('y')]
        expect((await copy.commit(next)).versions).toEqual((await driver.commit(next)).versions)
        expect((await copy.events(0, 9)).last).toBe(2)
      })

      it('refuses an existing file and leaves it as it is', async () => {
        const file = join(directory, 'copy.db')
        await driver.snapshot(file)
        const { mtimeMs, size } = statSync(file)
        await expect(driver.snapshot(file)).rejects.toMatchObject({ kind: 'invalid' })
        expect(statSync(file)).toMatchObject({ mtimeMs, size })
      })

      it('is of one moment while writers go on, and holds what was durable before it began', async () => {
        const filler = 'x'.repeat(2000)
        for (let i = 0; i < 30; i++)
          await driver.commit(Array.from({ length: 50 }, (_, j) => put(`fill/${i}/${j}`, filler)))
        await driver.commit([put('left', '0', 0), put('right', '0', 0)])
        let stopped = false
        let written = 0
        const write = async () => {
          while (!stopped) {
            written += 1
            await driver.commit([
              put('left', `${written}`),
              put(`new/${randomUUID()}`, filler),
              put('right', `${written}`),
              event(''),
            ])
            // Memory commits without leaving the turn: let the snapshot have one too.
            await turn()
          }
        }
        const writers = [write()]
        await turn()
        await turn()
        const before = Number(text((await driver.get('left'))?.value))
        const file = join(directory, 'copy.db')
        await driver.snapshot(file)
        stopped = true
        await Promise.all(writers)
        await using copy = openSqliteDriver(file, { readOnly: true })
        const left = text((await copy.get('left'))?.value)
        expect(text((await copy.get('right'))?.value)).toBe(left)
        expect(Number(left)).toBeGreaterThanOrEqual(before)
        expect(await copy.list('fill/', { limit: 10_000 })).toHaveLength(1500)
        expect(await copy.list('new/', { limit: 100_000 })).toHaveLength(Number(left))
        expect((await copy.events(0, 1)).last).toBe(Number(left))
      })
    })
  })
}
