import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startKeyturn } from '../test/support/keyturn.ts'
import type { Slapd } from '../test/support/slapd.ts'
import { median, rssMb, until } from './load.ts'
import type { Report } from './report.ts'
import { BULK, MANAGER, startController, startServer, withDirectory } from './servers.ts'

const ROLES = 1_000
const MORE = 40
const TIMES = 5
const NAMESPACE = 'bench'

/** `keyturn dev`, and a controller beside a server, over a directory of manifests: starts, memory, and from a manifest to its Secret. */
export async function standalone(report: Report): Promise<void> {
  await withDirectory(ROLES + 2 * MORE, (slapd) =>
    overManifests(slapd, async (at) => {
      const args = ['--manifests', at.manifests, '--secrets', at.secrets]
      const dev = await startKeyturn({ command: 'dev', args, env: { KEYTURN_LOG_LEVEL: 'info' } })
      try {
        const again = async () => {
          await dev.end()
          return timed(dev.again)
        }
        report.add(`start of dev, median of ${TIMES}`, await medianOf(again), 'ms')
        await measure(report, at, [['dev', () => dev.pid]])
        report.add(`start of dev with 1,000 roles, median of ${TIMES}`, await medianOf(again), 'ms')
      } finally {
        await dev.stop()
      }
    }),
  )
  await withDirectory(ROLES + 2 * MORE, (slapd) =>
    overManifests(slapd, async (at) => {
      const server = await startServer()
      const flags = ['--manifests', at.manifests, '--secrets', at.secrets]
      let controller = await startController(server, flags)
      const again = async () => {
        await controller.end()
        return timed(async () => {
          controller = await startController(server, flags)
        })
      }
      try {
        report.add(`start of the controller, median of ${TIMES}`, await medianOf(again), 'ms')
        await measure(report, at, [
          ['the controller', () => controller.pid],
          ['the server beside it', () => server.pid],
        ])
        report.add(`start of the controller with 1,000 roles, median of ${TIMES}`, await medianOf(again), 'ms')
      } finally {
        await controller.end()
        await server.stop()
      }
    }),
  )
}

interface Places {
  readonly manifests: string
  readonly secrets: string
}

type Watched = readonly [name: string, pid: () => number][]

async function measure(report: Report, at: Places, processes: Watched): Promise<void> {
  const memory = async (when: string) => {
    await sleep(1_000)
    for (const [name, pid] of processes) report.add(`RSS of ${name}, ${when}`, await rssMb(pid()), 'MB')
  }
  const [[name] = ['']] = processes
  await memory('after start')
  await oneByOne(report, at, ROLES + MORE + 1, `${name} without others`)
  const beganMs = performance.now()
  const files = Array.from({ length: 10 }, (_, n) => rolesIn(n * (ROLES / 10) + 1, ROLES / 10))
  for (const [n, text] of files.entries()) await put(at, `roles-${n}.yaml`, text)
  await until('the last of 1,000 Secrets', 120_000, async () => (await secretsIn(at)) === ROLES + MORE)
  report.add(`Secrets of 1,000 roles applied at once, ${name}`, (ROLES * 1000) / (performance.now() - beganMs), '/s')
  await memory('with 1,000 roles')
  await oneByOne(report, at, ROLES + 1, `${name} with 1,000 roles`)
}

async function oneByOne(report: Report, at: Places, first: number, beside: string): Promise<void> {
  const times: number[] = []
  for (let n = first; n < first + MORE; n++) {
    const fromMs = performance.now()
    await put(at, `role-${n}.yaml`, rolesIn(n, 1))
    await until('its Secret', 20_000, () => isThere(`${at.secrets}/${NAMESPACE}/bulk-${n}/password`), 5)
    times.push(performance.now() - fromMs)
  }
  report.addTimes(`apply -> Secret, ${beside}`, times)
}

/** Makes the manifests of an engine that `bench` may use. */
async function overManifests(slapd: Slapd, work: (at: Places) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), 'kt-bench-'))
  const at = { manifests: `${directory}/manifests`, secrets: `${directory}/secrets` }
  const engine = {
    urls: [slapd.url],
    bindDN: MANAGER.binddn,
    bindPasswordSecretRef: { name: 'bind', key: 'password' },
    userDN: BULK,
    userAttr: 'uid',
    tenancy: [{ namespaces: { names: [NAMESPACE] }, kinds: ['StaticRole'], allowedDNs: [BULK] }],
  }
  const bind = { name: 'bind', namespace: 'keyturn-system' }
  try {
    await mkdir(at.manifests)
    const documents = [
      { apiVersion: 'v1', kind: 'Secret', metadata: bind, stringData: { password: MANAGER.bindpass } },
      { apiVersion: 'keyturn.dev/v1alpha1', kind: 'LdapEngine', metadata: { name: 'corp' }, spec: engine },
    ]
    await put(at, 'engine.yaml', documents.map((one) => JSON.stringify(one)).join('\n---\n'))
    await work(at)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

function rolesIn(from: number, count: number): string {
  const documents = Array.from({ length: count }, (_, i) => {
    const name = `bulk-${from + i}`
    const spec = { engineRef: { name: 'corp' }, username: name, rotationPeriod: '24h', output: {} }
    const metadata = { name, namespace: NAMESPACE }
    return JSON.stringify({ apiVersion: 'keyturn.dev/v1alpha1', kind: 'LdapStaticRole', metadata, spec })
  })
  return documents.join('\n---\n')
}

/** As an editor does it: whole, by a rename. */
async function put({ manifests }: Places, name: string, text: string): Promise<void> {
  await writeFile(`${manifests}/.${name}`, text)
  await rename(`${manifests}/.${name}`, `${manifests}/${name}`)
}

async function secretsIn({ secrets }: Places): Promise<number> {
  const names = await readdir(`${secrets}/${NAMESPACE}`).catch(() => [])
  return names.filter((name) => !name.startsWith('.')).length
}

async function isThere(file: string): Promise<boolean> {
  return (await readFile(file, 'utf8').catch(() => '')) !== ''
}

async function timed(work: () => Promise<void>): Promise<number> {
  const startMs = performance.now()
  await work()
  return performance.now() - startMs
}

async function medianOf(measured: () => Promise<number>): Promise<number> {
  const times: number[] = []
  for (let n = 0; n < TIMES; n++) times.push(await measured())
  return median(times)
}
