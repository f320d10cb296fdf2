import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeEach, describe, expect, it } from 'vitest'
import * as z from 'zod'
import { TestClock } from '../../../test/support/test-clock.ts'
import { Secret } from '../../lib/secret.ts'
import { openFileSeal } from '../seal/file-seal.ts'
import { openBarrier } from '../seal/keyring.ts'
import { VersionConflict } from './driver.ts'
import { compareKeys } from './keys.ts'
import { createMemoryDriver } from './memory.ts'
import { openStore, storeFile } from './open.ts'
import { check, instantCodec, publish, put, recordKind, remove, Store, secretCodec } from './store.ts'

const Role = recordKind('role/', z.object({ password: secretCodec, at: instantCodec, dn: z.string().exactOptional() }))
const clock = new TestClock()
const directory = mkdtempSync(join(tmpdir(), 'kt-'))
const seal = openFileSeal(join(directory, 'seal-key'), { createIfMissing: true })
const open = () => openStore({ driver: createMemoryDriver(), seal, clock })
const role = { password: new Secret('s3cret'), at: new Date('2026-02-03T04:05:06.007Z') }
afterAll(() => rmSync(directory, { recursive: true }))

describe('store', () => {
  it('gives a document back as it was written, with its version and due time', async () => {
    const store = await open()
    const due = { queue: 'rotation', at: new Date('2026-01-02T00:00:00Z') }
    const versions = await store.commit([put(Role, 'a/b', role, { expected: 0, due })])
    const stored = await store.read(Role, 'a/b')
    expect(stored).toMatchObject({ key: 'a/b', version: versions.get('a/b'), due, value: { at: role.at } })
    expect(stored?.value.password.equals(role.password)).toBe(true)
    expect(await store.list(Role, 'a/', { limit: 9 })).toEqual([stored])
    const [claimed] = await store.claim(Role, 'rotation', { now: due.at, until: role.at, limit: 1 })
    expect(claimed).toMatchObject({ key: 'a/b', overdueSince: due.at, due: { at: role.at } })
  })

  it('remembers a document for as long as it has not changed, whoever changed it', async () => {
    const driver = createMemoryDriver()
    const [store, other] = [await openStore({ driver, seal, clock }), await openStore({ driver, seal, clock })]
    expect(await store.readRemembered(Role, 'a')).toBeUndefined()
    await store.commit([put(Role, 'a', role, { expected: 0 })])
    const first = await store.readRemembered(Role, 'a')
    expect(await store.readRemembered(Role, 'a')).toBe(first)
    await other.commit([put(Role, 'a', { ...role, dn: 'cn=a' }, { expected: 'any' })])
    expect((await store.readRemembered(Role, 'a'))?.value.dn).toBe('cn=a')
    await other.commit([remove(Role, 'a', { expected: 'any' })])
    expect(await store.readRemembered(Role, 'a')).toBeUndefined()
  })

  it('claims keys without opening what they hold', async () => {
    const store = await open()
    const due = { queue: 'rotation', at: new Date('2026-01-02T00:00:00Z') }
    await store.commit(['a', 'b'].map((key) => put(Role, key, role, { expected: 0, due })))
    const options = { now: due.at, until: role.at, limit: 9 }
    expect(await store.claimKeys(Role, 'rotation', options)).toEqual(['a', 'b'])
    expect(await store.claimKeys(Role, 'rotation', options)).toEqual([])
  })

  describe('with one value that is not as it was written', () => {
    const due = { queue: 'rotation', at: new Date('2026-01-02T00:00:00Z') }
    const told: string[] = []
    let store: Store
    beforeEach(async () => {
      const driver = createMemoryDriver()
      const barrier = await openBarrier(driver, seal)
      told.length = 0
      store = new Store(driver, barrier, clock, (error) => told.push(error.message))
      await store.commit(['a', 'b', 'c'].map((key) => put(Role, key, role, { expected: 0, due })))
      for (const type of ['one', 'two', 'three']) await store.commit([publish({ type, mount: 'ldap/', path: '' })])
      const flip = (value: Uint8Array | undefined) => value?.fill(1, value.length >> 1, (value.length >> 1) + 1)
      // The memory driver gives out what it holds.
      flip((await driver.get('role/b'))?.value)
      flip((await driver.events(1, 1)).events[0]?.value)
    })
    const damage = { kind: 'unavailable', reason: 'store-damaged', message: expect.stringContaining('role/b') }

    it('says so to who reads it, and to who asks for all', async () => {
      await expect(store.read(Role, 'b')).rejects.toMatchObject(damage)
      await expect(store.list(Role, '', { limit: 9 })).rejects.toMatchObject(damage)
      await expect(store.requireWhole()).rejects.toMatchObject(damage)
      expect(told).toEqual([])
    })

    it('goes on without it where there is other work, and tells', async () => {
      expect(await store.readUndamaged(Role, 'b')).toBeUndefined()
      const options = { now: due.at, until: role.at, limit: 3 }
      expect((await store.claim(Role, 'rotation', options)).map(({ key }) => key)).toEqual(['a', 'c'])
      expect(await store.claim(Role, 'rotation', options)).toEqual([])
      expect(told).toEqual([expect.stringContaining('role/b'), expect.stringContaining('role/b')])
      const { events, damaged } = await store.events(0, 9)
      expect([events.map(({ type }) => type), damaged]).toEqual([['one', 'three'], [2]])
    })

    it('names it where only names are asked for', async () => {
      expect(await store.keys(Role, '', { limit: 2 })).toEqual(['a', 'b'])
      expect(await store.keys(Role, '', { limit: 2, after: 'b' })).toEqual(['c'])
      expect(await store.children(Role, '')).toEqual(['a', 'b', 'c'])
    })
  })

  it('publishes an event exactly when its commit happens', async () => {
    const store = await open()
    const event = publish({ type: 'rotate', mount: 'ldap/', path: 'static-role/a', data: { credential_version: 2 } })
    await expect(store.commit([event, check(Role, 'a', 7)])).rejects.toThrow(VersionConflict)
    await store.commit([event, remove(Role, 'a', { expected: 'any' })])
    const { events, last } = await store.events(0, 9)
    expect(last).toBe(1)
    expect(events).toEqual([
      {
        number: 1,
        time: clock.now(),
        type: 'rotate',
        mount: 'ldap/',
        path: 'static-role/a',
        data: { credential_version: 2 },
      },
    ])
  })

  it('lists the children of a folder once each, however many lie deeper', async () => {
    const store = await open()
    const deep = Array.from({ length: 250 }, (_, i) => `a/deep/${i}`)
    // The last two sort differently as UTF-16 and as UTF-8.
    const names = [
      'a',
      'a/x',
      'a/x/y',
      'a/x-1',
      'a/x0',
      'b/c',
      'a/deep',
      'a/deep/\u{ff21}',
      'a/\u{ff21}/1',
      'a/\u{1f511}',
      ...deep,
    ]
    await store.commit(names.map((name) => put(Role, name, role, { expected: 0 })))
    expect(await store.children(Role, '')).toEqual(['a', 'a/', 'b/'])
    expect(await store.children(Role, 'a/')).toEqual([
      'deep',
      'deep/',
      'x',
      'x-1',
      'x/',
      'x0',
      '\u{ff21}/',
      '\u{1f511}',
    ])
    expect(await store.children(Role, 'none/')).toEqual([])
  })
})

it('orders keys as their UTF-8 octets', () => {
  const text = fc.string({ unit: 'binary' })
  fc.assert(
    fc.property(text, text, (a, b) => {
      expect(Math.sign(compareKeys(a, b))).toBe(Buffer.compare(Buffer.from(a), Buffer.from(b)))
    }),
  )
})

it.each([
  { location: '/var/lib/keyturn', want: '/var/lib/keyturn/keyturn.db' },
  { location: '/var/lib/keyturn/other.db', want: '/var/lib/keyturn/other.db' },
])('the store of $location is $want', ({ location, want }) => expect(storeFile(location)).toBe(want))

it.each(['', 'postgres://host/db', 'memory:'])('%j is no place of a file', (location) => {
  expect(() => storeFile(location)).toThrow(/^(the )?storage/)
})
