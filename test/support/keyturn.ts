import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, type Dispatcher, request } from 'undici'
import { freePort } from './ports.ts'

/** A keyturn process as users run it: `keyturn server` or `keyturn dev`, on loopback, on a data directory of its own. Ends with the test process. */
export interface Keyturn {
  readonly url: string
  readonly port: number
  readonly dataDir: string
  readonly caFile: string
  readonly socket: string
  readonly pid: number
  rootToken(): Promise<string>
  controllerToken(): Promise<string>
  /** One request over TCP, with the root token unless told otherwise; never throws on a status. */
  call(method: string, path: string, body?: unknown, options?: CallOptions): Promise<Reply>
  /** Everything it printed. */
  readonly output: string
  /** SIGTERM (or another signal), and wait for its end; resolves with the exit code. */
  end(signal?: NodeJS.Signals): Promise<number | null>
  /** Starts it again on the same data and port. */
  again(): Promise<void>
  /** Ends it and removes its data. */
  stop(): Promise<void>
}

export interface CallOptions {
  readonly token?: string | null
  readonly headers?: Record<string, string>
  /** Over the unix socket instead of TCP. */
  readonly socket?: boolean
}

export interface Reply {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  // biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary answers
  readonly body: any
  readonly text: string
}

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts')
const READY_MS = 20_000

export async function startKeyturn(
  options: {
    command?: 'server' | 'dev'
    args?: readonly string[]
    env?: Record<string, string>
    work?: string
    /** A program and its arguments that ends by executing what stands after it. */
    under?: readonly string[]
  } = {},
): Promise<Keyturn> {
  const { command = 'server', args = [], env = {}, under = [] } = options
  const dataDir = options.work ?? (await mkdtemp(path.join(tmpdir(), 'kt-data-')))
  const port = await freePort()
  const socket = path.join(dataDir, 'keyturn.sock')
  const tokenFile = path.join(dataDir, 'controller-token')
  const all = [
    command,
    '--data',
    dataDir,
    '--listen',
    `127.0.0.1:${port}`,
    '--socket',
    socket,
    '--controller-token',
    tokenFile,
  ]
  let output = ''
  let child: ChildProcess
  /** It has ended, and all that it printed has come. */
  let closed: Promise<unknown>
  let agent: Agent | undefined

  const launch = async () => {
    const program = ['--pdeathsig', 'KILL', '--', ...under, process.execPath, MAIN, ...all, ...args]
    const started = spawn('setpriv', program, {
      env: { ...process.env, KEYTURN_LOG_LEVEL: 'debug', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child = started
    closed = once(started, 'close')
    for (const stream of [started.stdout, started.stderr]) stream.on('data', (data) => (output += data))
    const end = performance.now() + READY_MS
    while (!(await isHealthy(port))) {
      if (started.exitCode !== null || started.signalCode !== null)
        throw new Error(`keyturn ended while starting:\n${output}`)
      if (performance.now() > end) throw new Error(`keyturn is not ready after ${READY_MS} ms:\n${output}`)
      await sleep(20)
    }
  }
  const end = async (signal: NodeJS.Signals = 'SIGTERM') => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal)
    await closed
    return child.exitCode
  }
  await launch()
  const caFile = path.join(dataDir, 'tls/ca.crt')
  const unix = new Agent({ connect: { socketPath: socket } })

  const keyturn: Keyturn = {
    url: `https://127.0.0.1:${port}`,
    port,
    dataDir,
    caFile,
    socket,
    get pid() {
      return child.pid ?? 0
    },
    get output() {
      return output
    },
    rootToken: async () => (await readFile(path.join(dataDir, 'root-token'), 'utf8')).trim(),
    controllerToken: async () => (await readFile(tokenFile, 'utf8')).trim(),
    async call(method, at, body, { token, headers = {}, socket: overSocket = false } = {}) {
      agent ??= new Agent({ connect: { ca: await readFile(caFile, 'utf8'), timeout: 60_000 } })
      const own = token === undefined ? await keyturn.rootToken() : token
      const answer = await request(`${overSocket ? 'http://keyturn' : keyturn.url}/v1/${at}`, {
        method: method as Dispatcher.HttpMethod,
        dispatcher: overSocket ? unix : agent,
        headers: { ...(own !== null && { 'x-vault-token': own }), ...headers },
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      })
      const text = await answer.body.text()
      return { status: answer.statusCode, headers: answer.headers, text, body: parsed(text) }
    },
    end,
    again: launch,
    async stop() {
      await end('SIGKILL')
      await agent?.close()
      await unix.close()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
  return keyturn
}

async function isHealthy(port: number): Promise<boolean> {
  const trusting = new Agent({ connect: { rejectUnauthorized: false } })
  try {
    const { statusCode, body } = await request(`https://127.0.0.1:${port}/v1/sys/health`, { dispatcher: trusting })
    await body.dump()
    return statusCode === 200
  } catch {
    return false
  } finally {
    await trusting.close()
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
