import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { request } from 'undici'
import { type Keyturn, startKeyturn } from '../test/support/keyturn.ts'
import { freePort } from '../test/support/ports.ts'
import { type Slapd, SUFFIX, startSlapd } from '../test/support/slapd.ts'
import { until } from './load.ts'

export const BULK = `ou=bulk,${SUFFIX}`
export const MANAGER = { binddn: `cn=svc-manager,ou=services,${SUFFIX}`, bindpass: 'svc-manager-secret' }
export const READER = { binddn: `cn=svc-reader,ou=services,${SUFFIX}`, bindpass: 'svc-reader-secret' }

/** A directory with so many accounts `bulk-1`, ..., that flushes every write to disk. */
export function startDirectory(accounts: number): Promise<Slapd> {
  return startSlapd({ BULK: String(accounts), SYNC: '1' })
}

/** A server as its users run it: TLS, audit log, log level `info`. */
export function startServer(): Promise<Keyturn> {
  return startKeyturn({ env: { KEYTURN_LOG_LEVEL: 'info' } })
}

export interface ControllerProcess {
  readonly pid: number
  end(): Promise<void>
}

/** A controller beside that server, as soon as it is ready. */
export async function startController(server: Keyturn, flags: readonly string[]): Promise<ControllerProcess> {
  const port = await freePort()
  const beside = ['--socket', server.socket, '--controller-token', `${server.dataDir}/controller-token`]
  const main = path.resolve(import.meta.dirname, '../src/main.ts')
  const command = [process.execPath, main, 'controller', ...beside, '--health-port', String(port), ...flags]
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', ...command], { stdio: 'ignore' })
  const isReady = async () => {
    const answer = await request(`http://127.0.0.1:${port}/readyz`).catch(() => undefined)
    await answer?.body.dump()
    return answer?.statusCode === 200
  }
  await until('the controller', 20_000, isReady, 20)
  return {
    pid: child.pid ?? 0,
    async end() {
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      await gone
    },
  }
}

/** Runs work on a server that is stopped and removed afterwards. */
export async function withServer<T>(work: (keyturn: Keyturn) => Promise<T>): Promise<T> {
  const keyturn = await startServer()
  try {
    const result = await work(keyturn)
    await keyturn.end()
    return result
  } finally {
    await keyturn.stop()
  }
}

/** Runs work on a directory that is stopped and removed afterwards. */
export async function withDirectory<T>(accounts: number, work: (slapd: Slapd) => Promise<T>): Promise<T> {
  const slapd = await startDirectory(accounts)
  try {
    return await work(slapd)
  } finally {
    await slapd.stop()
  }
}

/** The secrets engine at `ldap/` manages the bulk accounts of this directory. */
export async function configureEngine(keyturn: Keyturn, slapd: Slapd): Promise<void> {
  await must(keyturn, 'ldap/config', { url: slapd.url, ...MANAGER, userdn: BULK, userattr: 'uid', schema: 'openldap' })
}

/** One write that must succeed. */
export async function must(keyturn: Keyturn, path: string, body: unknown): Promise<void> {
  const { status, text } = await keyturn.call('POST', path, body)
  if (status >= 300) throw new Error(`POST ${path}: ${status} ${text}`)
}
