import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/api/limits.ts'
import { type ApiServer, startApi } from '../../src/api/server.ts'
import { type Client, createClient } from '../../src/client/client.ts'
import { httpTransport } from '../../src/client/http.ts'
import { inProcessTransport } from '../../src/client/in-process.ts'
import type { EngineDoor, EngineRequest } from '../../src/engine/request.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { AppError, denied, invalid, notFound, unavailable, unsupported } from '../../src/lib/errors.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import type { ContentAnswer, EngineAnswer } from '../../src/schema/answer.ts'

const failures: Record<string, () => Error> = {
  invalid: () => invalid('field x'),
  denied: () => denied(),
  'denied-why': () => denied('bad token'),
  'not-found': () => notFound('no handler for route'),
  unsupported: () => unsupported(),
  unavailable: () => unavailable('away'),
}

/** An engine whose path says what to answer; it keeps a small event feed. */
class ScriptedEngine implements EngineDoor {
  last: EngineRequest | undefined
  kept = 1
  events: number[] = []
  outages = 0

  async handle(request: EngineRequest, signal: AbortSignal): Promise<EngineAnswer> {
    this.last = request
    const base = { requestId: request.id, warnings: [] }
    const content: ContentAnswer = { ...base, kind: 'content', mountType: 'test', shape: 'envelope' }
    const word = request.path.replace(/\/$/, '')
    if (failures[word]) throw failures[word]()
    switch (word) {
      case 'nothing':
        return { kind: 'empty', ...base }
      case 'absent':
        return { kind: 'absent', ...base }
      case 'flat':
        return {
          ...content,
          shape: 'flat',
          warnings: ['careful'],
          data: { password: new Secret('pw'), at: new Date('2026-05-01T09:00:00Z'), none: null },
          lease: { id: 'l/1', durationMs: 60_500, renewable: true },
        }
      case 'keys':
        return { ...content, shape: 'keys', keys: ['a', 'b/'] }
      case 'sys/health':
        return { ...content, shape: 'raw', data: { sealed: true }, health: 'sealed' }
      case 'sys/events':
        return { ...content, data: await this.#feed(Number(request.fields['after']), signal) }
      case 'auth/corp/login/J. Ü/x':
        return { ...content, auth: { ...login, metadata: { password: String(request.fields['password']) } } }
      default:
        return {
          ...content,
          data: { fields: JSON.stringify(request.fields), operation: request.operation, path: request.path },
        }
    }
  }

  async #feed(after: number, signal: AbortSignal) {
    if (this.outages-- > 0) throw unavailable('restarting')
    const last = this.events.at(-1) ?? 0
    const gap = this.kept > after + 1
    const found = this.events.filter((number) => number > after)
    if (!gap && found.length === 0 && after <= last)
      await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }))
    const events = found.map((number) => ({
      number,
      time: 't',
      type: 'x',
      mount: 'm/',
      path: `p${number}`,
      owner: '',
      data: {},
    }))
    return { events, last, first_kept: this.kept, gap }
  }
}

const login = {
  clientToken: new Secret('kts.token'),
  accessor: 'a',
  policies: ['default'],
  tokenPolicies: ['default'],
  identityPolicies: [],
  leaseDurationMs: 1000,
  renewable: true,
  entityId: 'e',
  tokenType: 'service',
  orphan: true,
  numUses: 0,
} as const

const engine = new ScriptedEngine()
let dir: string
let api: ApiServer
const clients: Record<string, Client> = {}
const ways = ['in-process', 'http', 'https', 'unix'] as const

beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'kt-client-'))
  const tls = { directory: dir, names: ['localhost', '127.0.0.1'] }
  api = await startApi({
    engine,
    listeners: [
      { kind: 'tcp', host: '127.0.0.1', port: 0 },
      { kind: 'tcp', host: '127.0.0.1', port: 0, tls },
      { kind: 'unix', path: path.join(dir, 'k.sock'), mode: 0o600 },
    ],
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'silent' }),
    trustedProxies: [],
    proxyProtocol: false,
    limits: { ...DEFAULT_LIMITS, shutdownMs: 500 },
  })
  const [http = '', https = '', unix = ''] = api.addresses
  const ca = await readFile(path.join(dir, 'ca.crt'), 'utf8')
  const deps = { clock: systemClock, random: systemRandom, token: async () => new Secret('kts.me') }
  clients['in-process'] = createClient({ ...deps, transport: inProcessTransport({ engine, random: systemRandom }) })
  clients['http'] = createClient({ ...deps, transport: httpTransport({ address: http }) })
  clients['https'] = createClient({ ...deps, transport: httpTransport({ address: https, ca }) })
  clients['unix'] = createClient({ ...deps, transport: httpTransport({ address: unix }) })
})
afterAll(async () => {
  for (const client of Object.values(clients)) await client[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  await rm(dir, { recursive: true, force: true })
})

describe.each(ways)('%s', (way) => {
  const client = () => clients[way] ?? expect.unreachable('no such client')

  test('answers are the same plain JSON', async () => {
    expect(await client().write('nothing', { a: 1 })).toBeUndefined()
    expect(await client().read('absent')).toBeUndefined()
    expect(await client().list('absent')).toEqual([])
    expect(await client().list('keys')).toEqual(['a', 'b/'])
    expect(await client().read('flat')).toEqual({
      requestId: expect.stringMatching(/^[0-9a-f-]{36}$/),
      data: { password: 'pw', at: '2026-05-01T09:00:00Z', none: null },
      auth: undefined,
      warnings: ['careful'],
      keys: [],
      lease: { id: 'l/1', durationMs: 60_000, renewable: true },
    })
    expect((await client().read('sys/health'))?.data).toEqual({ sealed: true })
  })

  test('requests arrive the same', async () => {
    const body = { text: 'é"', number: 1, flag: true, none: null, list: ['a'], secret: new Secret('pw') }
    const fields = '{"text":"é\\"","number":1,"flag":true,"none":null,"list":["a"],"secret":"pw"}'
    expect((await client().write('/a b/ü%2F+', body))?.data).toEqual({ fields, operation: 'write', path: 'a b/ü%2F+' })
    expect(engine.last?.token?.reveal()).toBe('kts.me')
    const query = { n: 1, flag: false, none: null, many: ['x', 'y'], text: 'a&b=c d' }
    const read = '{"n":"1","flag":"false","many":["x","y"],"text":"a&b=c d"}'
    expect((await client().read('a', query))?.data).toEqual({ fields: read, operation: 'read', path: 'a' })
    expect((await client().delete('a', { n: 1 }))?.data).toEqual({
      fields: '{"n":"1"}',
      operation: 'delete',
      path: 'a',
    })
    await client().list('keys')
    expect(engine.last?.path).toBe('keys/')
    await expect(client().read('a/../b')).rejects.toThrow(/segment/)
  })

  test.each(Object.keys(failures))('%s comes back as what it was', async (kind) => {
    const wanted = failures[kind]?.()
    const got = await client()
      .write(kind)
      .catch((error: unknown) => error)
    expect(got).toBeInstanceOf(AppError)
    expect(got).toMatchObject({ kind: wanted instanceof AppError ? wanted.kind : '', message: wanted?.message })
  })

  test('login sends no token and gives one', async () => {
    const answer = await client().login('corp/', 'J. Ü/x', new Secret('pw"'))
    expect(answer.auth).toMatchObject({ client_token: 'kts.token', metadata: { password: 'pw"' } })
    expect(engine.last?.token).toBeUndefined()
  })

  test('principal and owner go where they are taken', async () => {
    const told = client().write('a', {}, { principal: 'kubernetes:team', owner: 'cr:1' })
    if (way === 'in-process' || way === 'unix') {
      await told
      expect(engine.last).toMatchObject({ principal: 'kubernetes:team', owner: 'cr:1' })
    } else await expect(told).rejects.toMatchObject({ kind: 'denied' })
  })

  test('the event feed is followed over outages and gaps, until the signal', async () => {
    Object.assign(engine, { kept: 5, events: [5, 6, 7], outages: 1 })
    const stop = new AbortController()
    const seen: unknown[] = []
    for await (const followed of client().followEvents(2, stop.signal)) {
      if (followed.kind === 'gap') {
        seen.push(`gap until ${followed.resumeAfter}`)
        engine.events.push(8, 9)
      } else seen.push(followed.event.path)
      if (seen.length === 3) setTimeout(() => stop.abort(), 20)
    }
    expect(seen).toEqual(['gap until 7', 'p8', 'p9'])
  })

  test('a feed that begins anew, as after a restore, is a gap', async () => {
    Object.assign(engine, { kept: 1, events: [1, 2], outages: 0 })
    const feed = client().followEvents(50, AbortSignal.timeout(5_000))
    expect((await feed.next()).value).toEqual({ kind: 'gap', resumeAfter: 2 })
    engine.events.push(3)
    expect((await feed.next()).value).toMatchObject({ kind: 'event', event: { number: 3 } })
    await feed.return()
  })

  test('a call ends with its signal', async () => {
    Object.assign(engine, { kept: 1, events: [1], outages: 0 })
    const signal = AbortSignal.timeout(50)
    await expect(client().read('sys/events', { after: 1 }, { signal })).rejects.toThrow(/timeout/)
  })
})

test('a server that is not there is unavailable; an address that is none is invalid', async () => {
  const deps = { clock: systemClock, random: systemRandom }
  const away = createClient({ ...deps, transport: httpTransport({ address: 'http://127.0.0.1:1' }) })
  await expect(away.read('a')).rejects.toMatchObject({
    kind: 'unavailable',
    message: expect.stringContaining('127.0.0.1:1'),
  })
  const stranger = createClient({ ...deps, transport: httpTransport({ address: api.addresses[1] ?? '' }) })
  await expect(stranger.read('a')).rejects.toMatchObject({
    kind: 'invalid',
    reason: 'untrusted-certificate',
    message: expect.stringMatching(/certificate/),
  })
  const careless = createClient({
    ...deps,
    transport: httpTransport({ address: api.addresses[1] ?? '', insecure: true }),
  })
  expect((await careless.read('sys/health'))?.data).toEqual({ sealed: true })
  expect(() => httpTransport({ address: 'localhost:8200' })).toThrow(/must begin with/)
  expect(() => httpTransport({ address: 'https://localhost:8200/v1' })).toThrow(/must end with its host and port/)
  await Promise.all([away, stranger, careless].map((client) => client[Symbol.asyncDispose]()))
})
