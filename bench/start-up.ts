import { spawn } from 'node:child_process'
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { openFileSeal } from '../src/engine/seal/file-seal.ts'
import { openDriver, openStore } from '../src/engine/storage/open.ts'
import { put } from '../src/engine/storage/store.ts'
import { accessorKind, dueOf, tokenKind } from '../src/engine/token/token-record.ts'
import { systemClock } from '../src/lib/clock.ts'
import { type Keyturn, startKeyturn } from '../test/support/keyturn.ts'
import { type Slapd, startSlapd } from '../test/support/slapd.ts'
import { connect, loadOver, median, rssMb, until } from './load.ts'
import type { Report } from './report.ts'
import { configureEngine, startServer, withDirectory, withServer } from './servers.ts'

const ROLES = 1_000
const TOKENS = 100_000
const TIMES = 5
const SAMPLES = path.resolve(import.meta.dirname, '../config/samples')
const MAIN = path.resolve(import.meta.dirname, '../src/main.ts')

/** From spawn to the first healthy answer, and the memory afterwards, with little and much in the store; memory of the other processes. */
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
  await controllerMemory(report)
  await devMemory(report)
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

const SECRET = 'demo/app-login/password'

/** `keyturn controller` beside a server, over the sample manifests until their Secret is there. */
async function controllerMemory(report: Report): Promise<void> {
  await overSamples(async (work) => {
    const server = await startServer()
    const args = ['controller', '--manifests', `${work}/manifests`, '--secrets', `${work}/secrets`]
    const beside = ['--socket', server.socket, '--controller-token', `${server.dataDir}/controller-token`]
    const command = ['--pdeathsig', 'KILL', '--', process.execPath, MAIN, ...args, ...beside]
    const controller = spawn('setpriv', command, { stdio: 'ignore' })
    try {
      await secretIn(`${work}/secrets`)
      report.add('RSS of the controller, the sample manifests', await rssMb(controller.pid ?? 0), 'MB')
      report.add('RSS of the server beside it', await rssMb(server.pid), 'MB')
    } finally {
      controller.kill('SIGKILL')
      await server.stop()
    }
  })
}

/** `keyturn dev` over the same. */
async function devMemory(report: Report): Promise<void> {
  await overSamples(async (work) => {
    const args = ['--manifests', `${work}/manifests`, '--secrets', `${work}/secrets`]
    const dev = await startKeyturn({ command: 'dev', args, env: { KEYTURN_LOG_LEVEL: 'info' } })
    try {
      await secretIn(`${work}/secrets`)
      report.add('RSS of dev, the sample manifests', await rssMb(dev.pid), 'MB')
    } finally {
      await dev.stop()
    }
  })
}

async function secretIn(directory: string): Promise<void> {
  await until(
    'the Secret',
    20_000,
    async () => (await readFile(`${directory}/${SECRET}`, 'utf8').catch(() => '')) !== '',
  )
  await sleep(1_000)
}

async function overSamples(work: (directory: string) => Promise<void>): Promise<void> {
  const slapd = await startSlapd()
  const directory = await mkdtemp(path.join(tmpdir(), 'kt-bench-'))
  try {
    await samples(slapd, `${directory}/manifests`)
    await work(directory)
  } finally {
    await slapd.stop()
    await rm(directory, { recursive: true, force: true })
  }
}

async function samples(slapd: Slapd, directory: string): Promise<void> {
  await cp(SAMPLES, directory, { recursive: true })
  for (const file of await readdir(directory)) {
    const at = path.join(directory, file)
    await writeFile(at, (await readFile(at, 'utf8')).replaceAll('ldap://127.0.0.1:3890', slapd.url))
  }
}
