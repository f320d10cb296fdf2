import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { openFileSeal } from '../src/engine/seal/file-seal.ts'
import { openDriver, openStore } from '../src/engine/storage/open.ts'
import { put } from '../src/engine/storage/store.ts'
import { accessorKind, dueOf, tokenKind } from '../src/engine/token/token-record.ts'
import { systemClock } from '../src/lib/clock.ts'
import type { Keyturn } from '../test/support/keyturn.ts'
import { connect, loadOver, median, rssMb } from './load.ts'
import type { Report } from './report.ts'
import { configureEngine, withDirectory, withServer } from './servers.ts'

const ROLES = 1_000
const TOKENS = 100_000
const TIMES = 5

/** The server from spawn to its first healthy answer, and its memory afterwards, with little and much in the store. */
export async function startUp(report: Report): Promise<void> {
  await withServer(async (keyturn) => {
    await restarts(report, keyturn, 'an empty store')
    await keyturn.end()
    await fillWithTokens(keyturn)
    await keyturn.again()
    await restarts(report, keyturn, `${TOKENS.toLocaleString('en')} tokens`)
  })
  await withDirectory(ROLES, (slapd) =>
    withServer(async (keyturn) => {
      await configureEngine(keyturn, slapd)
      {
        await using api = await connect(keyturn, 16, await keyturn.rootToken())
        const names = Array.from({ length: ROLES }, (_, i) => `bulk-${i + 1}`)
        await loadOver(16, names, (username, lane) =>
          api.call(lane, 'POST', `ldap/static-role/${username}`, { username, rotation_period: '24h' }),
        )
        report.add('RSS of the server, 1,000 roles created by rotation', await rssMb(keyturn.pid), 'MB')
      }
      await restarts(report, keyturn, '1,000 roles')
    }),
  )
}

async function restarts(report: Report, keyturn: Keyturn, what: string): Promise<void> {
  const times: number[] = []
  for (let n = 0; n < TIMES; n++) {
    await keyturn.end()
    const startMs = performance.now()
    await keyturn.again()
    times.push(performance.now() - startMs)
  }
  report.add(`start with ${what}, median of ${TIMES}`, median(times), 'ms')
  await sleep(1_000)
  report.add(`RSS of the server, started with ${what}`, await rssMb(keyturn.pid), 'MB')
}

/** Writes tokens into the store of a stopped server, as it would have written them. */
async function fillWithTokens({ dataDir }: Keyturn): Promise<void> {
  await using driver = openDriver(dataDir)
  const seal = openFileSeal(path.join(dataDir, 'seal-key'), { createIfMissing: false })
  const store = await openStore({ driver, seal, clock: systemClock })
  const ttlMs = 24 * 3_600_000
  const issuedAt = systemClock.now()
  for (let from = 0; from < TOKENS; from += 1_000) {
    const changes = Array.from({ length: 1_000 }, (_, i) => {
      const accessor = `bench-${from + i}`
      const record = {
        accessor,
        state: 'live' as const,
        policies: ['default'],
        path: 'auth/ldap/login/bench',
        metadata: { username: 'bench' },
        displayName: 'ldap-bench',
        entityId: '',
        type: 'service' as const,
        issuedAt,
        ttlMs,
        expiresAt: new Date(issuedAt.getTime() + ttlMs + from + i),
        explicitMaxTtlMs: 0,
        periodMs: 0,
        maxTtlMs: 0,
        numUses: 0,
        boundCidrs: [],
        orphan: true,
        renewable: true,
        isController: false,
      }
      const key = String(from + i).padStart(64, '0')
      return [
        put(tokenKind, key, record, { expected: 0, ...dueOf(record) }),
        put(accessorKind, accessor, { key }, { expected: 0 }),
      ]
    })
    await store.commit(changes.flat())
  }
}
