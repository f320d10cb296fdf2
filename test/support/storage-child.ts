/**
 * Writes to a sealed store from a process of its own, so that a test can kill it or give it a disk of its own:
 * `node storage-child.ts <DIR> <what>`. What happens is told on standard output, a line at a time.
 */
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { openFileSeal } from '../../src/engine/seal/file-seal.ts'
import { openDriver, openStore } from '../../src/engine/storage/open.ts'
import { publish, put, recordKind } from '../../src/engine/storage/store.ts'
import { systemClock } from '../../src/lib/clock.ts'

const [directory = '', what = ''] = process.argv.slice(2)
const Note = recordKind('note/', z.object({ text: z.string() }))
const tell = (line: string) => process.stdout.write(`${line}\n`)
const failure = (error: unknown) =>
  error instanceof Error ? `${'kind' in error ? error.kind : error.name}: ${error.message}` : ''

async function open() {
  const driver = openDriver(directory)
  const seal = openFileSeal(join(directory, 'seal-key'), { createIfMissing: true })
  return { driver, store: await openStore({ driver, seal, clock: systemClock }) }
}

/** Eight writers at once, until killed; tells each key once its commit is acknowledged. */
async function hammer() {
  const { store } = await open()
  const event = publish({ type: 'write', mount: 'sys/', path: 'note' })
  const write = async (writer: number) => {
    for (let i = 0; ; i++) {
      const key = `${process.pid}-${writer}-${i}`
      await store.commit([put(Note, key, { text: key }, { expected: 0 }), event])
      tell(key)
    }
  }
  await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map(write))
}

/** The directory is a small disk of its own: fills it, is refused, makes space, writes again. */
async function fill() {
  const { driver, store } = await open()
  await store.commit([put(Note, 'first', { text: 'durable' }, { expected: 0 })])
  const ballast = join(directory, 'ballast')
  try {
    for (let i = 0; ; i++) writeFileSync(`${ballast}-${i}`, Buffer.alloc(64 * 1024))
  } catch (error) {
    tell(`ballast: ${error instanceof Error && 'code' in error ? error.code : ''}`)
  }
  const long = randomBytes(200_000).toString('hex')
  const both = await Promise.allSettled([
    store.commit([
      put(Note, 'first', { text: 'changed' }, { expected: 'any' }),
      put(Note, 'long', { text: long }, { expected: 0 }),
    ]),
    driver.snapshot(join(directory, 'backup.db')),
  ])
  for (const one of both) tell(`refused: ${one.status === 'rejected' ? failure(one.reason) : 'no'}`)
  tell(`first: ${(await store.read(Note, 'first'))?.value.text}, long: ${(await store.read(Note, 'long'))?.value.text}`)
  for (const name of readdirSync(directory)) if (name.startsWith('ballast')) rmSync(join(directory, name))
  tell(
    `left: ${readdirSync(directory)
      .filter((name) => name.startsWith('backup'))
      .join()}`,
  )
  await store.commit([put(Note, 'long', { text: long }, { expected: 0 })])
  await driver.snapshot(join(directory, 'backup.db'))
  await driver[Symbol.asyncDispose]()
  const again = await open()
  tell(`after: ${(await again.store.read(Note, 'long'))?.value.text === long}`)
  await again.driver[Symbol.asyncDispose]()
}

/** Opens the store, or a new one below, on what is mounted read-only. */
async function frozen() {
  for (const place of [directory, join(directory, 'deeper')]) {
    try {
      const driver = openDriver(place)
      await driver.commit([{ type: 'put', key: 'a', value: Buffer.from('x'), expected: 'any' }])
      tell('not refused')
    } catch (error) {
      tell(`refused: ${failure(error)}`)
    }
  }
}

if (what === 'fill') execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', directory])
if (what === 'frozen') {
  execFileSync('mount', ['--bind', directory, directory])
  execFileSync('mount', ['-o', 'remount,bind,ro', directory])
}
if (what === 'hammer') await hammer()
if (what === 'fill') await fill()
if (what === 'frozen') await frozen()
