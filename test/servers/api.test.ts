import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { connect as connectTls } from 'node:tls'
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { DEFAULT_LIMITS, type Limits } from '../../src/api/limits.ts'
import type { Listener } from '../../src/api/listener.ts'
import { type ApiServer, startApi } from '../../src/api/server.ts'
import type { EngineDoor, EngineRequest } from '../../src/engine/request.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { unavailable } from '../../src/lib/errors.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import type { EngineAnswer } from '../../src/schema/answer.ts'

/** An engine that tells what it was asked; `hold/…` answers when let go, `sys/events` when told to stop. */
class EchoEngine implements EngineDoor {
  readonly seen: EngineRequest[] = []
  readonly aborted: string[] = []
  #held: (() => void)[] = []

  letGo(): void {
    for (const go of this.#held.splice(0)) go()
  }

  async handle(request: EngineRequest, signal: AbortSignal): Promise<EngineAnswer> {
    this.seen.push(request)
    const { operation, path: asked, dialect, remote, fields } = request
    signal.addEventListener('abort', () => this.aborted.push(asked))
    if (asked.startsWith('hold/')) await new Promise<void>((resolve) => this.#held.push(resolve))
    if (asked === 'sys/events' || asked === 'stuck') {
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    if (asked === 'down') throw unavailable('the directory is away')
    if (asked === 'bug') throw new Error('PLANTED detail')
    if (operation === 'delete') return { kind: 'empty', requestId: request.id, warnings: [] }
    const data = {
      operation,
      path: asked,
      dialect,
      address: remote.address,
      transport: remote.transport,
      size: JSON.stringify(fields).length,
    }
    return { kind: 'content', requestId: request.id, mountType: 'echo', warnings: [], shape: 'envelope', data }
  }
}

let dir: string
let engine: EchoEngine
let api: ApiServer | undefined
/** What the server logged, a line each. */
let logged: string
const open: Socket[] = []

beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'kt-api-'))
  engine = new EchoEngine()
  logged = ''
})
afterEach(async () => {
  engine.letGo()
  for (const socket of open.splice(0)) socket.destroy()
  await api?.[Symbol.asyncDispose]()
  api = undefined
  await rm(dir, { recursive: true, force: true })
})

async function start(
  listeners: Listener[],
  {
    limits = {},
    trustedProxies = [],
    proxyProtocol = false,
  }: { limits?: Partial<Limits>; trustedProxies?: string[]; proxyProtocol?: boolean } = {},
): Promise<string[]> {
  api = await startApi({
    engine,
    listeners,
    clock: systemClock,
    random: systemRandom,
    log: pino({ level: 'info' }, { write: (line) => (logged += line) }),
    trustedProxies,
    proxyProtocol,
    limits: { ...DEFAULT_LIMITS, ...limits },
  })
  return [...api.addresses]
}

const loopback: Listener = { kind: 'tcp', host: '127.0.0.1', port: 0 }
const ownTls = (): Listener => ({
  ...loopback,
  tls: { directory: path.join(dir, 'tls'), names: ['localhost', '127.0.0.1', '::1'] },
})

interface Answer {
  status: number
  headers: http.IncomingHttpHeaders
  body: string
}

function ask(
  address: string,
  target: string,
  options: { method?: string; headers?: http.OutgoingHttpHeaders; body?: string | Buffer; ca?: string } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { method = 'GET', headers = {}, body, ca } = options
    const done = (response: http.IncomingMessage) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
        }),
      )
    }
    const request = address.startsWith('unix:')
      ? http.request({ socketPath: address.slice(5), path: target, method, headers, agent: false }, done)
      : address.startsWith('https:')
        ? https.request(address + target, { method, headers, agent: false, ...(ca && { ca }) }, done)
        : http.request(address + target, { method, headers, agent: false }, done)
    request.on('error', reject)
    request.end(body)
  })
}

/** A connection on which bytes are sent as they are. */
async function raw(
  address: string,
  ca?: string,
): Promise<{ socket: Socket; received: () => string; until: (text: string) => Promise<void> }> {
  const { protocol, hostname, port, pathname } = new URL(address)
  const socket =
    protocol === 'unix:'
      ? connect(pathname)
      : protocol === 'https:'
        ? connectTls({ host: hostname, port: Number(port), servername: 'localhost', ...(ca && { ca }) })
        : connect(Number(port), hostname)
  open.push(socket)
  let text = ''
  socket.on('data', (chunk) => (text += chunk.toString('latin1')))
  socket.on('error', () => undefined)
  socket.setNoDelay(true)
  await once(socket, protocol === 'https:' ? 'secureConnect' : 'connect')
  return {
    socket,
    received: () => text,
    until: (wanted) =>
      until(
        () => text.includes(wanted),
        () => `waiting for ${wanted}, got ${text}`,
      ),
  }
}

async function until(
  condition: () => boolean | Promise<boolean>,
  what: () => string = () => 'a condition',
): Promise<void> {
  const end = performance.now() + 8_000
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`gave up: ${what()}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

const closed = (socket: Socket) =>
  until(
    () => socket.closed,
    () => 'the connection to be closed',
  )
const dataOf = (answer: Answer) => JSON.parse(answer.body).data

test('plain, TLS and unix socket answer alike, with LIST', async () => {
  const socketPath = path.join(dir, 'run', 'k.sock')
  const addresses = await start([loopback, ownTls(), { kind: 'unix', path: socketPath, mode: 0o600 }])
  const ca = await readFile(path.join(dir, 'tls', 'ca.crt'), 'utf8')
  for (const address of addresses) {
    const transport = address.startsWith('unix') ? 'unix' : 'tcp'
    const read = await ask(address, '/v1/a/b?x=1', { ca, headers: { 'x-service-token': 't' } })
    expect(read.status).toBe(200)
    expect(read.headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' })
    expect(dataOf(read)).toMatchObject({ operation: 'read', path: 'a/b', dialect: 'bare', transport })
    const { socket, until: seen } = await raw(address, ca)
    const chunked = 'POST /v1/w HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n'
    const bytes = `LIST /v1/one HTTP/1.1\r\nHost: a\r\n\r\n${chunked}7\r\n{"LIST \r\n5\r\n":1}\n\r\n0\r\n\r\nLIST /v1/two HTTP/1.1\r\nHost: a\r\n\r\n`
    for (const byte of bytes) socket.write(byte)
    await seen('"two/"')
    // Requests of one connection are answered in order, but asked of the engine as each is complete.
    const seenLast = engine.seen.slice(-3).map((request) => [request.path, request.operation, request.fields])
    expect(seenLast.toSorted()).toEqual([
      ['one/', 'list', {}],
      ['two/', 'list', {}],
      ['w', 'write', { 'LIST ': 1 }],
    ])
  }
  expect((await stat(socketPath)).mode & 0o777).toBe(0o600)
  expect((await stat(path.join(dir, 'tls', 'ca.key'))).mode & 0o777).toBe(0o600)
})

test('LIST split at every position, with an answer still pending', async () => {
  const [address = ''] = await start([loopback])
  const request = 'LIST /v1/p HTTP/1.1\r\nHost: a\r\n\r\n'
  for (let cut = 1; cut < request.length; cut++) {
    const { socket, until: seen } = await raw(address)
    socket.write(`GET /v1/first HTTP/1.1\r\nHost: a\r\n\r\n${request.slice(0, cut)}`)
    await seen('"first"')
    socket.write(request.slice(cut))
    await seen('"p/"')
    socket.destroy()
  }
})

test('statuses and bodies of refusals', async () => {
  const [address = ''] = await start([loopback], { limits: { bodyBytes: 1000 } })
  const errors = (answer: Answer) => [answer.status, JSON.parse(answer.body).errors]
  expect(errors(await ask(address, '/'))).toEqual([404, [expect.stringContaining('/v1/')]])
  expect(errors(await ask(address, '/v1/a%'))).toEqual([400, [expect.stringContaining('percent')]])
  expect(errors(await ask(address, '/v1/a', { method: 'PUT', body: 'x'.repeat(1001) }))).toEqual([
    413,
    [expect.stringContaining('1000')],
  ])
  const longer = { method: 'PUT', body: 'x'.repeat(5000), headers: { 'transfer-encoding': 'chunked' } }
  expect(errors(await ask(address, '/v1/a', longer))).toEqual([413, [expect.any(String)]])
  expect((await ask(address, '/v1/a', { method: 'PUT', body: JSON.stringify({ a: 'x'.repeat(900) }) })).status).toBe(
    200,
  )
  expect((await ask(address, '/v1/a', { method: 'PATCH', body: '{}' })).status).toBe(415)
  for (const method of ['OPTIONS', 'TRACE', 'PROPFIND', 'UNLINK'])
    expect((await ask(address, '/v1/a', { method })).status).toBe(405)
  expect(errors(await ask(address, '/v1/bug'))).toEqual([500, ['internal error']])
  const down = await ask(address, '/v1/down')
  expect(errors(down)).toEqual([503, ['the directory is away']])
  expect(Number(down.headers['retry-after'])).toBeGreaterThanOrEqual(1)
  expect(Number(down.headers['retry-after'])).toBeLessThanOrEqual(5)
  const gone = await ask(address, '/v1/a', { method: 'DELETE' })
  expect([gone.status, gone.body, gone.headers['cache-control']]).toEqual([204, '', 'no-store'])
  const head = await ask(address, '/v1/a', { method: 'HEAD' })
  expect([head.status, head.body]).toEqual([200, ''])
  expect((await ask(address, '/v1/a', { headers: { 'x-big': 'x'.repeat(20_000) } })).status).toBe(431)
})

test.each([
  ['without a Host header', 'GET /v1/a HTTP/1.1\r\n\r\n', '400 Bad Request', 'the request has no Host header'],
  [
    'with an expectation',
    'POST /v1/a HTTP/1.1\r\nHost: a\r\nExpect: foo\r\nContent-Length: 2\r\n\r\n{}',
    '417 Expectation Failed',
    'the request expects what this server does not do',
  ],
])('a request %s is refused as JSON', async (_, request, status, message) => {
  const [address = ''] = await start([loopback])
  const { socket, received } = await raw(address)
  socket.write(request)
  await closed(socket)
  const [head = '', body] = received().split('\r\n\r\n')
  expect(head).toContain(`HTTP/1.1 ${status}`)
  expect(head).toMatch(/\r\ncontent-type: application\/json\r\n/i)
  expect(head).toMatch(/\r\ncache-control: no-store\r\n/i)
  expect(JSON.parse(body ?? '')).toEqual({ errors: [message] })
  expect(engine.seen).toEqual([])
})

test('a client that waits to be told to go on is told, and a LIST may follow', async () => {
  const [address = ''] = await start([loopback])
  const { socket, until: seen } = await raw(address)
  socket.write('POST /v1/w HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n')
  await seen('100 Continue')
  socket.write('{"a": 1}LIST /v1/one HTTP/1.1\r\nHost: a\r\n\r\n')
  await seen('"one/"')
  expect(engine.seen.map(({ operation, fields }) => [operation, fields]).toSorted()).toEqual([
    ['list', {}],
    ['write', { a: 1 }],
  ])
})

test.each(['', ';;;', 'json', 'text/plain; charset', 'application/json; charset=utf-8', '*/*'])(
  'a body is read whatever it is called: "%s"',
  async (type) => {
    const [address = ''] = await start([loopback])
    const { socket, until: seen } = await raw(address)
    const post = `POST /v1/w HTTP/1.1\r\nHost: a\r\nContent-Type: ${type}\r\nContent-Length: 8\r\n\r\n{"a": 1}`
    socket.write(post)
    await seen('HTTP/1.1 200')
    expect(engine.seen[0]?.fields).toEqual({ a: 1 })
  },
)

test('what is no HTTP is refused as JSON, CONNECT and Upgrade open nothing', async () => {
  const [address = ''] = await start([loopback])
  const bad = await raw(address)
  bad.socket.write('FETCH / HTTP/1.1\r\n\r\n')
  await bad.until('{"errors":["the request is no valid HTTP"]}')
  await closed(bad.socket)
  const both = await raw(address)
  both.socket.write(
    'POST /v1/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nLIST /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n',
  )
  await both.until('HTTP/1.1 400')
  await closed(both.socket)
  const tunnel = await raw(address)
  tunnel.socket.write('CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n')
  await closed(tunnel.socket)
  const upgrade = await raw(address)
  upgrade.socket.write('GET /v1/plain HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
  await upgrade.until('"plain"')
  await closed(upgrade.socket)
  expect(upgrade.received()).toContain('HTTP/1.1 200 OK')
  expect(engine.seen.map((request) => request.path)).toEqual(['plain'])
})

test('plain HTTP beyond loopback must be asked for; a bad listener leaves none', async () => {
  await expect(start([{ kind: 'tcp', host: '0.0.0.0', port: 0 }])).rejects.toThrow(/refusing plain HTTP on 0.0.0.0/)
  await start([{ kind: 'tcp', host: '0.0.0.0', port: 0, allowPlainHttp: true }])
  await api?.[Symbol.asyncDispose]()
  const [address = ''] = await start([loopback])
  const port = Number(new URL(address).port)
  const first = path.join(dir, 'k.sock')
  const second = startApi({
    engine,
    listeners: [
      { kind: 'unix', path: first, mode: 0o600 },
      { ...loopback, port },
    ],
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'silent' }),
    trustedProxies: [],
    proxyProtocol: false,
    limits: DEFAULT_LIMITS,
  })
  await expect(second).rejects.toThrow(/cannot listen on 127.0.0.1.*EADDRINUSE/)
  await expect(stat(first)).rejects.toThrow(/ENOENT/)
})

test('a stale socket file is replaced, a live one is left alone', async () => {
  const socketPath = path.join(dir, 'k.sock')
  const left = 'const s=require("net").createServer().listen(process.argv[1],()=>process.kill(process.pid,"SIGKILL"))'
  expect(() => execFileSync(process.execPath, ['-e', left, socketPath])).toThrow()
  expect((await stat(socketPath)).isSocket()).toBe(true)
  const unix: Listener = { kind: 'unix', path: socketPath, mode: 0o600 }
  const [address = ''] = await start([unix])
  const running = api
  await expect(start([unix])).rejects.toThrow(/another server listens/)
  api = running
  expect((await ask(address, '/v1/a')).status).toBe(200)
})

test('slow and silent senders are cut off', async () => {
  const [address = ''] = await start([loopback], { limits: { headMs: 300, receiveMs: 600, checkMs: 50 } })
  const slowHead = await raw(address)
  slowHead.socket.write('GET /v1/a HTTP/1.1\r\nHo')
  const slowBody = await raw(address)
  slowBody.socket.write('PUT /v1/a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{')
  const silent = await raw(address)
  await slowHead.until('408 Request Timeout')
  await slowBody.until('408 Request Timeout')
  await Promise.all([closed(slowHead.socket), closed(slowBody.socket), closed(silent.socket)])
  expect(engine.seen).toEqual([])
})

test('a connection that says nothing before TLS is cut off', async () => {
  const [address = ''] = await start([ownTls()], { limits: { headMs: 200 } })
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  open.push(socket.resume())
  await once(socket, 'connect')
  await closed(socket)
})

test('a client that does not read its answers is cut off', async () => {
  const [address = ''] = await start([loopback], { limits: { silentMs: 300 } })
  const { socket } = await raw(address)
  socket.pause()
  const long = 'x'.repeat(12_000)
  for (let i = 0; i < 2000; i++) socket.write(`GET /v1/${long} HTTP/1.1\r\nHost: a\r\n\r\n`)
  await closed(socket)
  expect(engine.seen.length).toBeLessThan(2000)
})

test('so many connections are taken and no more', async () => {
  const [address = ''] = await start([loopback], { limits: { connections: 2 } })
  const taken = [await raw(address), await raw(address)]
  for (const { socket, until: seen } of taken) {
    socket.write('GET /v1/a HTTP/1.1\r\nHost: a\r\n\r\n')
    await seen('"a"')
  }
  await closed((await raw(address)).socket)
  taken[0]?.socket.destroy()
  await until(async () => (await ask(address, '/v1/b').catch(() => undefined))?.status === 200)
})

test('a request that takes too long is aborted and answered 503', async () => {
  const [address = ''] = await start([loopback], { limits: { answerMs: 300 } })
  const answer = await ask(address, '/v1/stuck')
  expect([answer.status, JSON.parse(answer.body).errors]).toEqual([503, ['the request took too long']])
  expect(engine.aborted).toEqual(['stuck'])
})

test('a client that goes away aborts nothing', async () => {
  const [address = ''] = await start([loopback])
  const { socket } = await raw(address)
  socket.write('POST /v1/hold/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n')
  await until(() => engine.seen.length === 1)
  socket.destroy()
  // Another whole request later, the server has noticed.
  await ask(address, '/v1/a')
  await ask(address, '/v1/a')
  expect(engine.aborted).toEqual([])
})

test('of requests sent without waiting for answers few are begun, the rest stays unread, and all are answered in order', async () => {
  const unix: Listener = { kind: 'unix', path: path.join(dir, 'k.sock'), mode: 0o600 }
  const addresses = await start([loopback, ownTls(), unix], { limits: { pipelined: 3 } })
  const ca = await readFile(path.join(dir, 'tls', 'ca.crt'), 'utf8')
  for (const address of addresses) {
    engine.seen.length = 0
    const { socket, received } = await raw(address, ca)
    const body = JSON.stringify({ pad: 'x'.repeat(40_000) })
    const count = 300
    for (let i = 0; i < count; i++)
      socket.write(`POST /v1/hold/${i} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
    await until(() => engine.seen.length === 3)
    // Others come through meanwhile.
    for (let i = 0; i < 3; i++) expect((await ask(address, '/v1/a', { ca })).status).toBe(200)
    expect(engine.seen.filter((request) => request.path.startsWith('hold/'))).toHaveLength(3)
    expect(socket.writableLength).toBeGreaterThan(0)
    const answered = () => [...received().matchAll(/"hold\/(\d+)"/g)].map(([, n]) => Number(n))
    await until(() => {
      engine.letGo()
      return answered().length === count
    })
    expect(answered()).toEqual(Array.from({ length: count }, (_, i) => i))
    socket.destroy()
  }
})

test('where it cannot be told where requests begin, too many at once end the connection', async () => {
  const [address = ''] = await start([loopback], { limits: { pipelined: 3 } })
  const coded = 'POST /v1/hold/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'
  const few = await raw(address)
  few.socket.write(coded.repeat(3))
  await until(() => engine.seen.length === 3)
  const { socket } = await raw(address)
  socket.write(coded.repeat(4))
  await closed(socket)
  expect(few.socket.closed).toBe(false)
})

test('a body that comes while earlier requests are unanswered is received', async () => {
  const [address = ''] = await start([loopback], { limits: { pipelined: 2 } })
  const { socket, until: seen } = await raw(address)
  const first = 'POST /v1/hold/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n'
  socket.write(`${first}POST /v1/second HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n{"a"`)
  await until(() => engine.seen.length === 1)
  socket.write(`: 1}${first}`)
  await until(() => engine.seen.length === 2)
  engine.letGo()
  await seen('"second"')
  await until(() => engine.seen.length === 3)
})

test('bodies of whatever size share one limit, and large ones leave a part of it to small ones', async () => {
  const kb = 1024
  const [address = ''] = await start([loopback], { limits: { allBodiesBytes: 800 * kb } })
  /** Sends all of a body but its last octet. */
  const half = async (bytes: number) => {
    const { socket } = await raw(address)
    socket.write(`POST /v1/a HTTP/1.1\r\nHost: a\r\nContent-Length: ${bytes + 1}\r\n\r\n${' '.repeat(bytes)}`)
    return socket
  }
  const small = { method: 'POST', body: JSON.stringify({ pad: 'x'.repeat(10 * kb) }) }
  const whole = async () => (await ask(address, '/v1/a', small)).status
  // Each leaves 64 KB of its own to the part for beginnings, which holds 200.
  const large = [await half(600 * kb)]
  await closed(await half(600 * kb))
  expect(await whole()).toBe(200)
  large.push(await half(60 * kb), await half(60 * kb))
  expect(await whole()).toBe(200)
  await closed(await half(60 * kb))
  for (const socket of large) expect(socket.closed).toBe(false)
  for (const socket of large) socket.destroy()
  await until(async () => (await half(60 * kb)).destroy() && (await whole()) === 200)
})

test('a client that goes away ends what only waits for news', async () => {
  const [address = ''] = await start([loopback])
  const { socket } = await raw(address)
  socket.write('GET /v1/sys/events?after=1&wait=30s HTTP/1.1\r\nHost: a\r\n\r\n')
  await until(() => engine.seen.length === 1)
  socket.destroy()
  await until(() => engine.aborted.length === 1)
  expect(engine.aborted).toEqual(['sys/events'])
})

test('stopping finishes what was begun, ends waiting reads, and takes nothing new', async () => {
  const socketPath = path.join(dir, 'k.sock')
  const [address = ''] = await start([loopback, { kind: 'unix', path: socketPath, mode: 0o600 }])
  const idle = await raw(address)
  idle.socket.write('GET /v1/a HTTP/1.1\r\nHost: a\r\n\r\n')
  await idle.until('"a"')
  const begun = ask(address, '/v1/hold/x', { method: 'POST' })
  const waiting = ask(address, '/v1/sys/events?after=1&wait=30s')
  await until(() => engine.seen.length === 3)
  const stopped = api?.[Symbol.asyncDispose]()
  expect((await waiting).status).toBe(503)
  await closed(idle.socket)
  await expect(ask(address, '/v1/b')).rejects.toThrow(/ECONNREFUSED/)
  engine.letGo()
  const answer = await begun
  expect([answer.status, answer.headers.connection]).toEqual([200, 'close'])
  await stopped
  await expect(stat(socketPath)).rejects.toThrow(/ENOENT/)
  expect(engine.aborted).toEqual(['sys/events'])
})

test('stopping waits for the rest of a body, and not for ever', async () => {
  const [address = ''] = await start([loopback], { limits: { shutdownMs: 500 } })
  const begin = async () => {
    const connection = await raw(address)
    connection.socket.write('POST /v1/w HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n{"a"')
    return connection
  }
  const [comes, never] = [await begin(), await begin()]
  // What was sent before another request was answered has come.
  await ask(address, '/v1/a')
  const stopped = api?.[Symbol.asyncDispose]()
  comes.socket.write(': 1}')
  await comes.until('"w"')
  expect(comes.received()).toMatch(/connection: close/i)
  await stopped
  await closed(never.socket)
  expect(never.received()).toBe('')
})

test('stopping aborts what does not end in time', async () => {
  const [address = ''] = await start([loopback], { limits: { shutdownMs: 200 } })
  const begun = ask(address, '/v1/stuck')
  await until(() => engine.seen.length === 1)
  await api?.[Symbol.asyncDispose]()
  expect(JSON.parse((await begun).body).errors).toEqual(['the server is stopping'])
})

test('X-Forwarded-For is believed from trusted proxies only, and only as far as they go', async () => {
  const headers = { 'x-forwarded-for': '198.51.100.9, 203.0.113.5:4711, 10.1.2.3' }
  const addressSeen = async (trustedProxies: string[], more: http.OutgoingHttpHeaders = headers) => {
    const [address = ''] = await start([loopback], { trustedProxies })
    const seen = dataOf(await ask(address, '/v1/a', { headers: more })).address
    await api?.[Symbol.asyncDispose]()
    return seen
  }
  expect(await addressSeen([])).toBe('127.0.0.1')
  expect(await addressSeen(['10.0.0.0/8'])).toBe('127.0.0.1')
  expect(await addressSeen(['127.0.0.0/8'])).toBe('10.1.2.3')
  expect(await addressSeen(['127.0.0.1', '10.0.0.0/8'])).toBe('203.0.113.5')
  expect(await addressSeen(['0.0.0.0/0'])).toBe('198.51.100.9')
  expect(await addressSeen(['127.0.0.1', '10.0.0.0/8'], { 'x-forwarded-for': '1.2.3.4, evil, 10.1.2.3' })).toBe(
    '10.1.2.3',
  )
  expect(await addressSeen(['127.0.0.1'], { 'x-forwarded-for': '[2001:db8::7]:443' })).toBe('2001:db8::7')
  await expect(start([loopback], { trustedProxies: ['10.0.0.0/33'] })).rejects.toThrow(/trusted proxies/)
})

const signature = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')
const version2 = Buffer.concat([
  signature,
  Buffer.from('2111000c', 'hex'),
  Buffer.from([198, 51, 100, 7, 127, 0, 0, 1, 1, 2, 3, 4]),
])
const local = Buffer.concat([signature, Buffer.from('20000000', 'hex')])
const list = 'LIST /v1/a HTTP/1.1\r\nHost: a\r\n\r\n'

test.each([
  ['version 1', Buffer.from('PROXY TCP4 198.51.100.7 127.0.0.1 4711 8200\r\n'), '198.51.100.7'],
  ['version 1, IPv6', Buffer.from('PROXY TCP6 2001:db8::7 ::1 4711 8200\r\n'), '2001:db8::7'],
  ['version 1, unknown', Buffer.from('PROXY UNKNOWN\r\n'), '127.0.0.1'],
  ['version 2', version2, '198.51.100.7'],
  ['version 2, local', local, '127.0.0.1'],
])('PROXY header %s, whole and byte by byte, before HTTP and before TLS', async (_, header, want) => {
  const [plain = '', tls = ''] = await start([loopback, ownTls()], {
    trustedProxies: ['127.0.0.1'],
    proxyProtocol: true,
  })
  const whole = await raw(plain)
  whole.socket.write(Buffer.concat([header, Buffer.from(list)]))
  await whole.until(`"address":"${want}"`)
  expect(whole.received()).toContain('"operation":"list"')
  const slow = await raw(plain)
  for (const byte of Buffer.concat([header, Buffer.from(list + list)])) slow.socket.write(Buffer.of(byte))
  await slow.until(`"address":"${want}"`)

  const { port } = new URL(tls)
  const below = connect(Number(port), '127.0.0.1')
  open.push(below)
  await once(below, 'connect')
  below.write(header)
  const ca = await readFile(path.join(dir, 'tls', 'ca.crt'), 'utf8')
  const above = connectTls({ socket: below, servername: 'localhost', ca })
  let text = ''
  above.on('data', (chunk) => (text += chunk))
  above.write(list)
  await until(
    () => text.includes(`"address":"${want}"`),
    () => text,
  )
  expect(text).toContain('"operation":"list"')
})

test('X-Forwarded-For after a PROXY header that names nobody is not believed', async () => {
  const [address = ''] = await start([loopback], { trustedProxies: ['127.0.0.1'], proxyProtocol: true })
  const request = 'GET /v1/a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.9\r\n\r\n'
  for (const [header, want] of [
    ['PROXY UNKNOWN\r\n', '127.0.0.1'],
    [local, '127.0.0.1'],
    ['PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n', '198.51.100.9'],
  ] as const) {
    const { socket, until: seen } = await raw(address)
    socket.write(Buffer.concat([Buffer.from(header), Buffer.from(request)]))
    await seen(`"address":"${want}"`)
  }
})

test('PROXY headers: wrong or late ones close the connection, strangers are not believed', async () => {
  const options = { trustedProxies: ['127.0.0.1'], proxyProtocol: true, limits: { headMs: 300 } }
  const [address = ''] = await start([loopback], options)
  for (const bytes of [
    'GET /v1/a HTTP/1.1\r\n\r\n',
    'PROXY TCP4 nonsense\r\n',
    `PROXY ${'x'.repeat(200)}`,
    'PROXY TCP',
  ]) {
    const { socket, received } = await raw(address)
    socket.write(bytes)
    await closed(socket)
    expect(received()).toBe('')
  }
  await api?.[Symbol.asyncDispose]()
  const [other = ''] = await start([loopback], { ...options, trustedProxies: ['10.0.0.0/8'] })
  const stranger = await raw(other)
  stranger.socket.write(`PROXY TCP4 198.51.100.7 127.0.0.1 1 2\r\n${list}`)
  await stranger.until('no valid HTTP')
  expect(dataOf(await ask(other, '/v1/a')).address).toBe('127.0.0.1')
})

/** A certificate of this name and its key, as `tls.crt` and `tls.key`. */
function makePair(directory: string, name: string): void {
  const what = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  const files = ['-keyout', path.join(directory, 'tls.key'), '-out', path.join(directory, 'tls.crt')]
  execFileSync('openssl', [...what, '-subj', `/CN=${name}`, ...files], { stdio: 'ignore' })
}

/** The name on the certificate that is shown to a new client. */
async function servedBy(address: string): Promise<string | undefined> {
  const socket = connectTls({ host: '127.0.0.1', port: Number(new URL(address).port), rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const name = socket.getPeerCertificate().subject.CN
  socket.destroy()
  return typeof name === 'string' ? name : undefined
}

test('a new certificate is used without a restart, a broken one is not', async () => {
  const [certFile, keyFile] = [path.join(dir, 'tls.crt'), path.join(dir, 'tls.key')]
  const make = (name: string) => makePair(dir, name)
  make('first')
  const [address = ''] = await start([{ ...loopback, tls: { certFile, keyFile } }])
  const served = () => servedBy(address)
  expect(await served()).toBe('first')
  make('second')
  await until(async () => (await served()) === 'second')
  await writeFile(certFile, 'broken')
  make('third')
  await until(async () => (await served()) === 'third')
  logged = ''
  await writeFile(keyFile, 'broken')
  await until(() => logged.includes('the new TLS certificate cannot be used; the old one stays'))
  expect(await served()).toBe('third')
  await api?.[Symbol.asyncDispose]()
  await expect(start([{ ...loopback, tls: { certFile, keyFile } }])).rejects.toThrow(/cannot be used/)
})

test('a certificate in a mounted Secret, whose link is turned, is used without a restart', async () => {
  const mounted = async (name: string) => {
    await mkdir(path.join(dir, `..${name}`))
    makePair(path.join(dir, `..${name}`), name)
    await symlink(`..${name}`, path.join(dir, '..data_tmp'))
    await rename(path.join(dir, '..data_tmp'), path.join(dir, '..data'))
  }
  await mounted('first')
  const [certFile, keyFile] = [path.join(dir, 'tls.crt'), path.join(dir, 'tls.key')]
  await symlink('..data/tls.crt', certFile)
  await symlink('..data/tls.key', keyFile)
  const [address = ''] = await start([{ ...loopback, tls: { certFile, keyFile } }])
  expect(await servedBy(address)).toBe('first')
  await mounted('second')
  await until(async () => (await servedBy(address)) === 'second')
})

test('the own certificate is kept over restarts and made anew for other names, under the same CA', async () => {
  const files = (names: string[]): Listener => ({ ...loopback, tls: { directory: path.join(dir, 'tls'), names } })
  const read = (name: string) => readFile(path.join(dir, 'tls', name), 'utf8')
  const [first = ''] = await start([files(['localhost', '127.0.0.1'])])
  const ca = await read('ca.crt')
  const certificate = await read('server.crt')
  expect((await ask(first, '/v1/a', { ca })).status).toBe(200)
  await api?.[Symbol.asyncDispose]()
  await start([files(['localhost', '127.0.0.1'])])
  expect(await read('server.crt')).toBe(certificate)
  await api?.[Symbol.asyncDispose]()
  const [third = ''] = await start([files(['keyturn.example', '127.0.0.1'])])
  expect(await read('server.crt')).not.toBe(certificate)
  expect(await read('ca.crt')).toBe(ca)
  expect((await ask(third, '/v1/a', { ca })).status).toBe(200)
})
