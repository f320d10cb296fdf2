import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { freePort } from './ports.ts'

/**
 * A scratch OpenLDAP server on loopback, seeded, with certificates; `slapd/slapd.sh` says what the environment can ask for. The kernel ends
 * it when the test process dies in any way.
 */
export interface Slapd {
  readonly work: string
  readonly url: string
  readonly tlsUrl: string
  readonly port: number
  /** The certificate authority, PEM. */
  readonly ca: string
  readonly pid: number
  /** Contents of a file that tls.sh made, such as `client.key`. */
  tls(name: string): Promise<string>
  /** Connections are accepted, nothing answers. */
  freeze(): Promise<void>
  thaw(): void
  /** SIGKILL; the data stay. */
  crash(): Promise<void>
  /** The same data on the same ports. */
  again(): Promise<void>
  stop(): Promise<void>
}

export const SUFFIX = 'dc=example,dc=test'

const exec = promisify(execFile)
const READY_MS = 60_000
const script = path.join(import.meta.dirname, 'slapd/slapd.sh')

export function slapdAvailable(): boolean {
  return existsSync('/usr/sbin/slapd') && existsSync('/usr/bin/ldapmodify')
}

export async function startSlapd(env: Record<string, string> = {}): Promise<Slapd> {
  const host = '127.0.0.1'
  const [port, tlsPort] = [await freePort(), await freePort()]
  const work = await mkdtemp(path.join(tmpdir(), 'kt-slapd-'))
  const fullEnv = { ...process.env, ...env }

  const launch = async (args: string[]) => {
    const command = ['--pdeathsig', 'KILL', '--', script, ...args]
    const started = spawn('setpriv', command, { env: fullEnv, stdio: ['ignore', 'ignore', 'inherit'] })
    await untilOpen(host, tlsPort, started)
    return started
  }
  const end = async (signal: NodeJS.Signals) => {
    if (hasEnded(child)) return
    const gone = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGCONT')
    child.kill(signal)
    await gone
  }

  let child = await launch(['run', work, String(port), String(tlsPort)])
  await exec(script, ['seed', work], { env: fullEnv })
  return {
    work,
    port,
    url: `ldap://${host}:${port}`,
    tlsUrl: `ldaps://${host}:${tlsPort}`,
    ca: await readFile(path.join(work, 'tls/ca.crt'), 'utf8'),
    get pid() {
      return child.pid ?? 0
    },
    tls: (name) => readFile(path.join(work, 'tls', name), 'utf8'),
    async freeze() {
      child.kill('SIGSTOP')
      // It takes effect a little later.
      while (!/\) [Tt] /.test(await readFile(`/proc/${child.pid}/stat`, 'utf8'))) await sleep(2)
    },
    thaw() {
      child.kill('SIGCONT')
    },
    crash: () => end('SIGKILL'),
    async again() {
      child = await launch(['rerun', work])
    },
    async stop() {
      await end('SIGKILL')
      await rm(work, { recursive: true, force: true })
    },
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null
}

async function untilOpen(host: string, port: number, child: ChildProcess): Promise<void> {
  const end = performance.now() + READY_MS
  for (;;) {
    const open = await new Promise<boolean>((resolve) => {
      const socket = net.connect({ host, port }, () => {
        socket.destroy()
        resolve(true)
      })
      socket.on('error', () => resolve(false))
    })
    if (open) return
    if (hasEnded(child)) throw new Error(`slapd ended while starting (${child.exitCode ?? child.signalCode})`)
    if (performance.now() > end) throw new Error(`no slapd at ${host}:${port} after ${READY_MS} ms`)
    await sleep(10)
  }
}

/** Changes the directory as its administrator, who may also set what the server keeps itself. */
export async function change(slapd: Pick<Slapd, 'url'>, ldif: string): Promise<void> {
  const admin = ['-x', '-e', 'relax', '-H', slapd.url, '-D', `cn=admin,${SUFFIX}`, '-w', 'admin-secret']
  const running = exec('ldapmodify', admin)
  running.child.stdin?.end(ldif)
  await running
}

/** Whether the directory accepts this name and password, asked by its own client tool. */
export async function binds(slapd: Pick<Slapd, 'url'>, dn: string, password: string): Promise<boolean> {
  try {
    await exec('ldapwhoami', ['-x', '-H', slapd.url, '-D', dn, '-w', password, '-o', 'nettimeout=5'])
    return true
  } catch (error) {
    // 49: invalid credentials; anything else is no answer to the question.
    if (error instanceof Error && 'code' in error && error.code === 49) return false
    throw error
  }
}
