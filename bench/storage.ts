/** Commits and reads per second of the SQLite store: alone, and 64 at once, which share an fsync. `node bench/storage.ts [DIR]` */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSqliteDriver } from '../src/engine/storage/sqlite.ts'

const SECONDS = 3
const directory = mkdtempSync(join(process.argv[2] ?? tmpdir(), 'kt-bench-'))

/** How often `once` ends in a second with so many running at a time. */
async function rate(concurrency: number, once: (n: number) => Promise<unknown>): Promise<number> {
  const start = performance.now()
  const end = start + SECONDS * 1000
  let done = 0
  const run = async () => {
    while (performance.now() < end) await once(done++)
  }
  await Promise.all(Array.from({ length: concurrency }, run))
  return Math.round((done / (performance.now() - start)) * 1000)
}

try {
  await using driver = openSqliteDriver(join(directory, 'store.db'))
  const value = Buffer.alloc(500, 1)
  const commit = (n: number) => {
    const due = { queue: 'rotation', at: new Date(n) }
    const event = { type: 'event', time: new Date(n), value: value.subarray(0, 150) } as const
    return driver.commit([{ type: 'put', key: `role/${n % 10_000}`, value, expected: 'any', due }, event])
  }
  const single = await rate(1, commit)
  const grouped = await rate(64, commit)
  const reads = await rate(1, (n) => driver.get(`role/${n % 1000}`))
  console.log(`commits/s, one at a time: ${single}`)
  console.log(`commits/s, 64 at once:    ${grouped} (${(grouped / single).toFixed(1)} times as many)`)
  console.log(`reads/s:                  ${reads}`)
} finally {
  rmSync(directory, { recursive: true })
}
