import { createHook } from 'node:async_hooks'
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  fstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import * as z from 'zod'
import { restore } from '../../src/engine/commands/restore.ts'
import { openFileSeal } from '../../src/engine/seal/file-seal.ts'
import { openBarrier } from '../../src/engine/seal/keyring.ts'
import { type DriverChange, type StorageDriver, VersionConflict } from '../../src/engine/storage/driver.ts'
import { openDriver, openStore, storeExists } from '../../src/engine/storage/open.ts'
import { clearRestoreMark, readRestoreMark } from '../../src/engine/storage/restore-mark.ts'
import { openSqliteDriver } from '../../src/engine/storage/sqlite.ts'
import { publish, put, recordKind } from '../../src/engine/storage/store.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { AppError } from '../../src/lib/errors.ts'
import { TestClock } from '../support/test-clock.ts'

const CHILD = join(import.meta.dirname, '../support/storage-child.ts')
const Note = recordKind('note/', z.object({ text: z.string() }))
const PLANTED = `planted-${randomBytes(12).toString('hex')}`

let directory: string
let file: string
let keyFile: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kt-'))
  file = join(directory, 'keyturn.db')
  keyFile = join(directory, 'seal-key')
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

async function open(place = directory) {
  const driver = openDriver(place)
  const seal = openFileSeal(keyFile, { createIfMissing: true })
  return {
    driver,
    store: await openStore({ driver, seal, clock: systemClock }),
    [Symbol.asyncDispose]: () => driver[Symbol.asyncDispose](),
  }
}

async function makeStore(count = 400) {
  await using it = await open()
  for (let i = 0; i < count; i++)
    await it.store.commit([put(Note, `${i}`, { text: `${PLANTED} ${i}` }, { expected: 0 })])
}

/** Opens a store and reads and writes everything in it; returns what went wrong. */
async function useAll(place: string): Promise<unknown> {
  try {
    await using it = await open(place)
    const notes = await it.store.list(Note, '', { limit: 10_000 })
    const wrong = notes.filter(({ key, value }) => value.text !== `${PLANTED} ${key}`)
    if (wrong.length > 0) return `served ${wrong.length} wrong values`
    if (notes.length !== 400) return `served ${notes.length} records as if that were all`
    return undefined
  } catch (error) {
    return error
  }
}

const inChild = (what: string) =>
  spawnSync('unshare', ['-m', process.execPath, CHILD, directory, what], { encoding: 'utf8', timeout: 30_000 })
const isRoot = process.getuid?.() === 0

describe('seal', () => {
  it('makes a private key file once and never overwrites it', () => {
    openFileSeal(keyFile, { createIfMissing: true })
    const text = readFileSync(keyFile, 'utf8')
    expect(Buffer.from(text, 'base64')).toHaveLength(32)
    expect(statSync(keyFile).mode & 0o777).toBe(0o600)
    openFileSeal(keyFile, { createIfMissing: true })
    expect(readFileSync(keyFile, 'utf8')).toBe(text)
  })

  it.each([
    '',
    'short',
    randomBytes(31).toString('base64'),
    randomBytes(33).toString('base64'),
    `${'A'.repeat(42)}==!`,
  ])('refuses the key file text %j', (text) => {
    writeFileSync(keyFile, text)
    expect(() => openFileSeal(keyFile, { createIfMissing: true })).toThrow(/seal key .* must hold 32 octets/)
    expect(readFileSync(keyFile, 'utf8')).toBe(text)
  })

  it('refuses an absent key file', () => {
    expect(() => openFileSeal(keyFile)).toThrow(/seal key .* does not exist/)
  })

  it('of another store opens nothing and changes nothing', async () => {
    await makeStore(3)
    const before = readFileSync(file)
    rmSync(keyFile)
    await expect(open()).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('the seal key does not open this store'),
    })
    expect(readFileSync(file).equals(before)).toBe(true)
  })

  it('is asked for one keyring, also by two who find the store empty at once', async () => {
    await using driver = openDriver('memory:')
    const seal = openFileSeal(keyFile, { createIfMissing: true })
    const [one, two] = await Promise.all([openBarrier(driver, seal), openBarrier(driver, seal)])
    expect(two.open('a', one.seal('a', Buffer.from('x'))).toString()).toBe('x')
  })

  it('makes no keyring for a store that has lost it', async () => {
    await makeStore(3)
    await using driver = openDriver(directory)
    await driver.commit([{ type: 'delete', key: 'core/keyring', expected: 'any' }])
    await expect(openBarrier(driver, openFileSeal(keyFile))).rejects.toMatchObject({ kind: 'invalid' })
    expect(await driver.get('core/keyring')).toBeUndefined()
  })

  it('does not open a value that was moved, cut or changed', async () => {
    await using it = await open()
    const key = `${Note.prefix}a`
    await it.store.commit([put(Note, 'a', { text: 'mine' }, { expected: 0 })])
    const value = (await it.driver.get(key))?.value ?? Buffer.alloc(0)
    const flipped = (i: number) => Buffer.from(value).fill((value[i] ?? 0) ^ 1, i, i + 1)
    const bad = [
      value.subarray(0, -1),
      value.subarray(0, 4),
      Buffer.alloc(0),
      ...Array.from(value, (_, i) => flipped(i)),
    ]
    for (const changed of bad) {
      await it.driver.commit([{ type: 'put', key, value: changed, expected: 'any' }])
      await expect(it.store.read(Note, 'a')).rejects.toThrow('does not open')
    }
    await it.driver.commit([{ type: 'put', key: `${Note.prefix}b`, value, expected: 'any' }])
    await expect(it.store.read(Note, 'b')).rejects.toThrow('does not open')
    await it.driver.commit([{ type: 'put', key, value, expected: 'any' }])
    expect((await it.store.read(Note, 'a'))?.value.text).toBe('mine')
  })

  it('hashes by purpose, the same after a restart', async () => {
    const hashes: string[] = []
    for (let i = 0; i < 2; i++) {
      await using driver = openDriver(directory)
      const barrier = await openBarrier(driver, openFileSeal(keyFile, { createIfMissing: true }))
      hashes.push(barrier.hash('token', 'x'), barrier.hash('audit', 'x'))
    }
    expect(hashes.slice(0, 2)).toEqual(hashes.slice(2))
    expect(new Set(hashes).size).toBe(2)
  })

  it('leaves no plaintext in the files', async () => {
    await using it = await open()
    await it.store.commit([
      put(Note, 'a', { text: PLANTED }, { expected: 0 }),
      publish({ type: 'write', mount: 'sys/', path: PLANTED }),
    ])
    const files = readdirSync(directory)
    expect(files).toContain('keyturn.db-wal')
    for (const name of files) {
      expect(statSync(join(directory, name)).mode & 0o777).toBe(0o600)
      expect(readFileSync(join(directory, name)).includes(PLANTED)).toBe(false)
    }
  })
})

describe('store file', () => {
  it('is made in a private directory and has one user at a time', async () => {
    const place = join(directory, 'deep', 'data')
    await using it = await open(place)
    expect(statSync(place).mode & 0o777).toBe(0o700)
    expect(() => openDriver(place)).toThrow(/in use by another process/)
    const other = spawnSync(process.execPath, [CHILD, place, 'hammer'], { encoding: 'utf8', timeout: 30_000 })
    expect(other.stderr).toContain('is in use by another process')
    await it.store.commit([put(Note, 'a', { text: 'goes on' }, { expected: 0 })])
  })

  it('of a newer version is refused and left alone', async () => {
    await makeStore(1)
    const db = new DatabaseSync(file)
    db.exec('PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)')
    db.close()
    const before = readFileSync(file)
    expect(() => openDriver(directory)).toThrow(/written by a newer version \(format 99/)
    expect(readFileSync(file).equals(before)).toBe(true)
  })

  it('of another program is refused and left alone', () => {
    const db = new DatabaseSync(file)
    db.exec('CREATE TABLE theirs (a)')
    db.close()
    const before = readFileSync(file)
    expect(() => openDriver(directory)).toThrow(/not a Keyturn store/)
    expect(readFileSync(file).equals(before)).toBe(true)
  })

  it('serves no wrong value after any octet of its header was flipped', async () => {
    await makeStore()
    const good = readFileSync(file)
    for (let at = 0; at < 100; at++) {
      const bad = Buffer.from(good)
      bad[at] = (bad[at] ?? 0) ^ 0xff
      writeFileSync(file, bad)
      const outcome = await useAll(directory)
      if (outcome !== undefined) {
        expect(outcome, `octet ${at}`).toBeInstanceOf(AppError)
        expect(String(outcome), `octet ${at}`).toContain(file)
        expect(readFileSync(file).equals(bad), `octet ${at} changed`).toBe(true)
      }
    }
  })

  it('serves no wrong value after octets in its middle were flipped', async () => {
    await makeStore()
    const good = readFileSync(file)
    let refused = 0
    for (let at = 150; at < good.length; at += 4096 - 7) {
      const bad = Buffer.from(good)
      for (let i = at; i < at + 64 && i < bad.length; i++) bad[i] = (bad[i] ?? 0) ^ 0xff
      writeFileSync(file, bad)
      const outcome = await useAll(directory)
      if (outcome === undefined) continue
      expect(outcome, `octets at ${at}`).toBeInstanceOf(Error)
      expect(String(outcome)).toMatch(/damaged/)
      refused += 1
    }
    expect(refused).toBeGreaterThan(5)
  })

  it.each([10, 100, 4096, 20_000])('is refused when only %i octets of it are left', async (size) => {
    await makeStore()
    truncateSync(file, size)
    const before = readFileSync(file)
    expect(() => openDriver(directory)).toThrow(file)
    expect(readFileSync(file).equals(before)).toBe(true)
  })

  it.skipIf(!isRoot)('on a full disk refuses writes and backups clearly, and recovers when there is space', () => {
    const { stdout, stderr } = inChild('fill')
    expect(stderr).toBe('')
    expect(stdout.trim().split('\n')).toEqual([
      'ballast: ENOSPC',
      'refused: unavailable: the store cannot be written: the disk is full; nothing was changed',
      expect.stringMatching(/^refused: unavailable: .*backup\.db.* disk is full/),
      'first: durable, long: undefined',
      'left: ',
      'after: true',
    ])
  })

  it.skipIf(!isRoot)('in a read-only directory is refused clearly', async () => {
    await makeStore(1)
    const before = readFileSync(file)
    const { stdout } = inChild('frozen')
    const lines = stdout.trim().split('\n')
    expect(lines).toHaveLength(2)
    expect(lines[0]).toMatch(/^refused: unavailable: .*keyturn\.db.*read-only/)
    expect(lines[1]).toMatch(/^refused: unavailable: .*deeper.*read-only/)
    expect(readFileSync(file).equals(before)).toBe(true)
  })

  describe('flushing', () => {
    /** Stands for a slow disk: each flush waits until it is let go. */
    function slowDisk() {
      const flushes: PromiseWithResolvers<void>[] = []
      const sync = () => {
        const flush = Promise.withResolvers<void>()
        flushes.push(flush)
        return flush.promise
      }
      return {
        sync,
        begun: (count: number) => expect.poll(() => flushes.length).toBe(count),
        release: () => flushes.at(-1)?.resolve(),
        get count() {
          return flushes.length
        },
      }
    }
    const at = (ms: number) => new Date(ms)
    const put = (key: string, value: string): DriverChange => ({
      type: 'put',
      key,
      value: Buffer.from(value),
      expected: 'any',
      due: { queue: 'q', at: at(5) },
    })
    const event: DriverChange = { type: 'event', time: at(1), value: Buffer.from('e') }

    /** A driver with the records `a`, `b` and `c`, all durable. */
    async function openSlow() {
      const disk = slowDisk()
      const driver = openSqliteDriver(file, { sync: disk.sync })
      const first = driver.commit([put('a', 'old'), put('b', 'old'), put('c', 'old')])
      await disk.begun(1)
      disk.release()
      await first
      return { disk, driver }
    }
    const textOf = async (driver: StorageDriver, key: string) =>
      Buffer.from((await driver.get(key))?.value ?? 'none').toString()

    it('is done by the system, on the log, also after that began anew', async () => {
      const seen: number[] = []
      const sync = async (fd: number) => void seen.push(fstatSync(fd).ino)
      {
        await using driver = openSqliteDriver(file, { sync })
        for (let i = 0; i < 40; i++) await driver.commit([put('big', `${i % 10}`.repeat(1024 * 1024))])
        expect(new Set(seen)).toEqual(new Set([statSync(`${file}-wal`).ino]))
        expect(seen).toHaveLength(40)
        // 40 MB were written, and the log was begun anew meanwhile.
        expect(statSync(file).size).toBeGreaterThan(1024 * 1024)
      }
      let calls = 0
      await using driver = openSqliteDriver(file)
      const hook = createHook({ init: (_, type) => void (type === 'FSREQCALLBACK' && calls++) }).enable()
      await driver.commit([put('big', 'small')])
      hook.disable()
      expect(calls).toBe(1)
    })

    it('comes before anybody is told of a write; others read meanwhile', async () => {
      const { disk, driver } = await openSlow()
      await using _ = driver
      const told: string[] = []
      const note = (what: string) => () => told.push(what)
      const waiting: Promise<unknown>[] = [
        driver.commit([put('a', 'new'), { type: 'delete', key: 'c', expected: 'any' }, event]).then(note('written')),
      ]
      await disk.begun(2)
      waiting.push(
        textOf(driver, 'a').then((value) => told.push(`a is ${value}`)),
        textOf(driver, 'c').then((value) => told.push(`c is ${value}`)),
        driver.version('a').then(note('version')),
        driver.list('', { limit: 9 }).then(note('listed')),
        driver.events(0, 9).then(note('events')),
        driver.commit([put('b', 'newer')]).then(note('written after')),
      )
      expect(await textOf(driver, 'b')).toBe('old')
      await sleep(20)
      expect(told).toEqual([])
      expect(disk.count).toBe(2)
      disk.release()
      await disk.begun(3)
      disk.release()
      await Promise.all(waiting)
      const last = told.pop()
      expect([last, ...told.toSorted()]).toEqual([
        'written after',
        'a is new',
        'c is none',
        'events',
        'listed',
        'version',
        'written',
      ])
    })

    it('comes before a claim is told, a copy is named and the file is closed', async () => {
      const { disk, driver } = await openSlow()
      const told: string[] = []
      const note = (what: string) => () => told.push(what)
      const claim = driver.claim('q', { now: at(6), until: at(9), limit: 1 }).then(note('claimed'))
      await disk.begun(2)
      const reading = driver.get('a').then(note('read'))
      const copying = driver.snapshot(join(directory, 'copy.db')).then(note('copied'))
      const closing = driver[Symbol.asyncDispose]().then(note('closed'))
      await sleep(50)
      expect(told).toEqual([])
      expect(existsSync(join(directory, 'copy.db'))).toBe(false)
      disk.release()
      await Promise.all([claim, reading, copying, closing])
      expect(told.toSorted()).toEqual(['claimed', 'closed', 'copied', 'read'])
      expect(told.at(-1)).toBe('closed')
    })

    it('is left out where nothing was written', async () => {
      const { disk, driver } = await openSlow()
      await using _ = driver
      expect(await driver.claim('q', { now: at(1), until: at(9), limit: 9 })).toEqual([])
      await expect(driver.commit([{ ...put('a', 'x'), expected: 99 } as DriverChange])).rejects.toThrow(VersionConflict)
      expect(disk.count).toBe(1)
      const told = driver.commit([event])
      await disk.begun(2)
      disk.release()
      await told
      const pruned = driver.pruneEvents({ before: at(9), keep: 0 })
      await disk.begun(3)
      disk.release()
      await pruned
    })

    it('that failed ends the store until it is opened anew', async () => {
      await makeStore(3)
      {
        let flushes = 0
        const sync = () =>
          ++flushes === 2 ? Promise.reject(new Error('EIO: i/o error, fdatasync')) : Promise.resolve()
        await using driver = openSqliteDriver(file, { sync })
        await driver.commit([put('x', 'x')])
        const failure = {
          kind: 'unavailable',
          message: expect.stringMatching(/may not have kept .*EIO.* must be started again/),
        }
        await expect(driver.commit([put('x', 'y')])).rejects.toMatchObject(failure)
        await expect(driver.commit([put('x', 'z')])).rejects.toMatchObject(failure)
        await expect(driver.get('note/0')).rejects.toMatchObject(failure)
        await expect(driver.snapshot(join(directory, 'copy.db'))).rejects.toMatchObject(failure)
        expect(await driver.failed).toMatchObject(failure)
        expect(flushes).toBe(2)
      }
      await using it = await open()
      expect((await it.store.read(Note, '2'))?.value.text).toBe(`${PLANTED} 2`)
    })

    it('may be missing of what a killed process left: its log is written again', async () => {
      await using driver = openSqliteDriver(file)
      await driver.commit([put('a', 'kept')])
      const left = join(directory, 'left.db')
      copyFileSync(file, left)
      copyFileSync(`${file}-wal`, `${left}-wal`)
      const octets = readFileSync(`${left}-wal`)
      utimesSync(`${left}-wal`, at(0), at(0))
      await using again = openSqliteDriver(left)
      expect(statSync(`${left}-wal`).mtimeMs).toBeGreaterThan(Date.now() - 60_000)
      expect(readFileSync(`${left}-wal`).equals(octets)).toBe(true)
      expect(await textOf(again, 'a')).toBe('kept')
    })
  })

  it('is not changed by half of a write that SQLite refuses, nor are the writes beside it', async () => {
    await using driver = openDriver(directory)
    const put = (key: string, value: unknown = Buffer.from('x')): DriverChange => ({
      type: 'put',
      key,
      value: value as Buffer,
      expected: 0,
    })
    const outcomes = await Promise.allSettled([
      driver.commit([put('a')]),
      driver.commit([put('b'), put('c', 'no octets')]),
      driver.commit([put('d'), put('e', {})]),
      driver.commit([put('a')]),
      driver.commit([put('f')]),
    ])
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected', 'rejected', 'fulfilled'])
    expect((await driver.list('', { limit: 9 })).map(({ key }) => key)).toEqual(['a', 'f'])
    expect(await driver.version('b')).toBe(0)
    await driver.commit([put('b')])
    expect(await driver.version('b')).toBeGreaterThan(await driver.version('f'))
  })

  it('keeps every acknowledged write of a process that was killed', async () => {
    const acknowledged: string[] = []
    for (let round = 1; round <= 5; round++) {
      const child = spawn(process.execPath, [CHILD, directory, 'hammer'], { stdio: ['ignore', 'pipe', 'inherit'] })
      const enough = acknowledged.length + 100 * round
      for await (const line of createInterface({ input: child.stdout })) {
        acknowledged.push(line)
        if (acknowledged.length === enough) child.kill('SIGKILL')
      }
      expect(acknowledged.length).toBeGreaterThanOrEqual(enough)
      await using it = await open()
      for (const key of acknowledged) expect((await it.store.read(Note, key))?.value.text, key).toBe(key)
      const { last } = await it.store.events(0, 1)
      expect(last).toBe((await it.store.list(Note, '', { limit: 100_000 })).length)
    }
  })
})

describe('restore', () => {
  const clock = new TestClock()
  const print = () => undefined
  let backup: string
  let target: string

  beforeEach(async () => {
    backup = join(directory, 'backup.db')
    target = join(directory, 'restored')
    await using it = await open()
    await it.store.commit([
      put(Note, 'a', { text: 'kept' }, { expected: 0 }),
      publish({ type: 'write', mount: 'sys/', path: 'a' }),
    ])
    await it.store.snapshot(backup)
  })

  it('a backup has its name when it is complete; one that was killed hinders no other, nor is a stranger touched', async () => {
    const again = join(directory, 'again.db')
    writeFileSync(`${again}.keyturn-partial`, 'left by a server that was killed')
    writeFileSync(`${again}.partial`, 'of somebody else')
    await using it = await open()
    const copied = it.store.snapshot(again)
    // Copying takes more turns of the event loop than this.
    for (let steps = 0; steps < 20; steps++) await undefined
    expect(existsSync(again)).toBe(false)
    await copied
    expect(readdirSync(directory).filter((name) => name.startsWith('again'))).toEqual(['again.db', 'again.db.partial'])
    await restore({ file: again, data: target, sealKeyFile: keyFile }, { clock, print })
  })

  it('lays the backup down with a mark, event numbers jumping ahead', async () => {
    const before = readFileSync(backup)
    await restore({ file: backup, data: target, sealKeyFile: keyFile }, { clock, print })
    expect(readdirSync(target)).toEqual(['keyturn.db'])
    expect(statSync(join(target, 'keyturn.db')).mode & 0o777).toBe(0o600)
    expect(readFileSync(backup).equals(before)).toBe(true)
    await using it = await open(target)
    expect((await it.store.read(Note, 'a'))?.value.text).toBe('kept')
    const { events, firstKept, last } = await it.store.events(0, 9)
    expect(events).toEqual([])
    expect(firstKept).toBe(last + 1)
    expect(last).toBeGreaterThan(1_000_000)
    const mark = await readRestoreMark(it.store)
    expect(mark?.at).toEqual(clock.now())
    if (mark) await it.store.commit([clearRestoreMark(mark)])
    expect(await readRestoreMark(it.store)).toBeUndefined()
  })

  it.each<{ what: string; prepare: () => unknown; message: RegExp }>([
    { what: 'where a store is', prepare: () => makeIn(target), message: /exists already/ },
    {
      what: 'with the key of another store',
      prepare: () => writeFileSync(keyFile, randomBytes(32).toString('base64')),
      message: /seal key does not open/,
    },
    { what: 'a damaged backup', prepare: () => truncateSync(backup, statSync(backup).size - 4096), message: /damaged/ },
    { what: 'an empty file', prepare: () => truncateSync(backup, 0), message: /empty/ },
    { what: 'an absent file', prepare: () => rmSync(backup), message: /no such file/ },
    {
      what: 'the file of a running server',
      prepare: () => writeFileSync(`${backup}-wal`, 'frames'),
      message: /in use by a server/,
    },
  ])('refuses $what and leaves nothing behind', async ({ prepare, message }) => {
    prepare()
    const there = existsSync(target) ? readdirSync(target) : []
    const outcome = restore({ file: backup, data: target, sealKeyFile: keyFile }, { clock, print })
    await expect(outcome).rejects.toThrow(message)
    await expect(outcome).rejects.toBeInstanceOf(AppError)
    expect(existsSync(target) ? readdirSync(target) : []).toEqual(there)
    expect(storeExists(target)).toBe(there.length > 0)
  })

  function makeIn(place: string) {
    mkdirSync(place)
    copyFileSync(backup, join(place, 'keyturn.db'))
  }

  it('reads a backup without touching it, and refuses writes', async () => {
    const before = readFileSync(backup)
    await using driver = openSqliteDriver(backup, { readOnly: true })
    expect((await driver.list('note/', { limit: 9 })).map(({ key }) => key)).toEqual(['note/a'])
    await expect(driver.commit([])).rejects.toMatchObject({ kind: 'unavailable' })
    expect(readFileSync(backup).equals(before)).toBe(true)
    expect(readdirSync(directory).filter((name) => name.startsWith('backup'))).toEqual(['backup.db'])
  })
})
