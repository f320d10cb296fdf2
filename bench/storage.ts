import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSqliteDriver } from '../src/engine/storage/sqlite.ts'
import { loadFor } from './load.ts'
import type { Report } from './report.ts'

const DURATION_MS = 3_000

/** Commits and reads of the SQLite store: alone, and 64 at once, which share an fsync. */
export async function storage(report: Report): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'kt-bench-'))
  try {
    await using driver = openSqliteDriver(join(directory, 'store.db'))
    const value = Buffer.alloc(500, 1)
    const commit = (_: number, n: number) => {
      const due = { queue: 'rotation', at: new Date(n) }
      const event = { type: 'event', time: new Date(n), value: value.subarray(0, 150) } as const
      return driver.commit([{ type: 'put', key: `role/${n % 10_000}`, value, expected: 'any', due }, event])
    }
    const single = (await loadFor(1, DURATION_MS, commit)).perSecond
    const grouped = (await loadFor(64, DURATION_MS, commit)).perSecond
    report.add('commits, one at a time', single, '/s')
    report.add('commits, 64 at once', grouped, '/s', `${(grouped / single).toFixed(1)} times as many`)
    report.add('reads', (await loadFor(1, DURATION_MS, (_, n) => driver.get(`role/${n % 1000}`))).perSecond, '/s')
  } finally {
    rmSync(directory, { recursive: true })
  }
}
