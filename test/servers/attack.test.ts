import { once } from 'node:events'
import { statSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import path from 'node:path'
import { connect } from 'node:tls'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { type Hook, type HookAnswer, startHook } from '../support/slapd-hook.ts'

// What somebody with bad intentions tries, over the API of a whole server and a real directory.

let slapd: Slapd
let keyturn: Keyturn
let hook: Hook
let socketDir: string
const services = `ou=services,${SUFFIX}`
const people = `ou=people,${SUFFIX}`

beforeAll(async () => {
  socketDir = await mkdtemp('/tmp/kt-att-')
  hook = await startHook(`${socketDir}/hook`, () => 'CONTINUE')
  slapd = await startSlapd({ HOOK: `${socketDir}/hook` })
  keyturn = await startKeyturn()
  await done('POST', 'ldap/config', {
    url: slapd.url,
    binddn: `cn=svc-manager,${services}`,
    bindpass: 'svc-manager-secret',
    userdn: services,
    userattr: 'uid',
  })
  await done('POST', 'auth/ldap/config', {
    url: slapd.url,
    binddn: `cn=svc-reader,${services}`,
    bindpass: 'svc-reader-secret',
    userdn: people,
    userattr: 'uid',
  })
})
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
  await hook?.[Symbol.asyncDispose]()
  await rm(socketDir, { recursive: true, force: true })
})

/** A request of the administrator that must succeed. */
async function done(method: string, path: string, body?: unknown): Promise<void> {
  const answer = await keyturn.call(method, path, body)
  expect([200, 204], `${method} ${path}: ${answer.text}`).toContain(answer.status)
}

/** A token with one policy of these rules and nothing else. */
async function tokenWith(name: string, policy: string): Promise<string> {
  await done('POST', `sys/policies/acl/${name}`, { policy })
  const made = await keyturn.call('POST', 'auth/token/create', { policies: [name], no_default_policy: true })
  return made.body.auth.client_token
}

function role(name: string, username: string): Promise<void> {
  return done('POST', `ldap/static-role/${name}`, { username, rotation_period: '24h' })
}

describe('a deny is not got around by another spelling of the same object', () => {
  let token: string
  beforeAll(async () => {
    await role('prod/db', 'static-1')
    await role('dev/db', 'static-2')
    await done('POST', 'auth/ldap/groups/admins', { policies: ['default'] })
    token = await tokenWith(
      'all-but-prod',
      `path "ldap/*" { capabilities = ["create", "read", "update", "delete", "list"] }
       path "ldap/static-role/prod/*" { capabilities = ["deny"] }
       path "ldap/static-cred/prod/*" { capabilities = ["deny"] }
       path "ldap/rotate-role/prod/*" { capabilities = ["deny"] }
       path "auth/ldap/groups/*" { capabilities = ["create", "read", "update", "delete"] }
       path "auth/ldap/groups/admins" { capabilities = ["deny"] }
       path "sys/policies/acl/*" { capabilities = ["create", "read", "update", "delete"] }
       path "sys/policies/acl/all-but-prod" { capabilities = ["deny"] }
       path "sys/mounts/*" { capabilities = ["read", "update", "delete"] }
       path "sys/mounts/ldap" { capabilities = ["deny"] }
       path "sys/mounts/ldap/tune" { capabilities = ["deny"] }`,
    )
  })
  test.each([
    ['GET', 'ldap/static-cred/prod/db'],
    ['GET', 'ldap/static-cred/PROD/db'],
    ['GET', 'ldap/static-cred/Prod/DB'],
    ['GET', 'ldap/static-cred/%50rod/db'],
    ['GET', 'ldap/static-cred/prod%2Fdb'],
    ['POST', 'ldap/rotate-role/Prod/db'],
    ['DELETE', 'ldap/static-role/Prod/db'],
    ['GET', 'ldap/static-role/Prod/db'],
    ['LIST', 'ldap/static-role/Prod'],
    ['LIST', 'ldap/static-role/Prod/'],
    ['POST', 'auth/ldap/groups/Admins'],
    ['POST', 'auth/ldap/groups/%20admins'],
    ['POST', 'sys/policies/acl/ALL-but-prod'],
    ['POST', 'sys/policies/acl/all-but-prod%20'],
    ['DELETE', 'sys/mounts/ldap/'],
    ['DELETE', 'sys/mounts/ldap//'],
    ['POST', 'sys/mounts/ldap//tune'],
  ])('%s %s', async (method, path) => {
    const body = method === 'POST' ? { policies: 'x', policy: 'path "*" { capabilities = ["sudo"] }' } : undefined
    const answer = await keyturn.call(method, path, body, { token })
    expect(answer.status, answer.text).toBe(403)
  })
  test.each(['ldap/static-cred/dev/db', 'ldap/static-cred/DEV/db'])('what is allowed stays so: %s', async (path) => {
    expect((await keyturn.call('GET', path, undefined, { token })).status).toBe(200)
  })
  test('rules that are written in capitals go on holding for that spelling', async () => {
    const loud = await tokenWith('loud', 'path "ldap/static-cred/DEV/*" { capabilities = ["read"] }')
    expect((await keyturn.call('GET', 'ldap/static-cred/DEV/db', undefined, { token: loud })).status).toBe(200)
    expect((await keyturn.call('GET', 'ldap/static-cred/dev/db', undefined, { token: loud })).status).toBe(403)
  })
})

describe('a field is not got around by another spelling of its value', () => {
  let token: string
  beforeAll(async () => {
    token = await tokenWith(
      'no-admin',
      `path "auth/token/create" {
         capabilities = ["update", "sudo"]
         denied_parameters = {
           "policies" = ["admin", "ops-*"]
           "no_parent" = [true]
           "ttl" = ["1h"]
           "meta" = [{ "team" = "red" }]
         }
       }
       path "auth/token/create-orphan" {
         capabilities = ["update", "sudo"]
         allowed_parameters = { "policies" = ["team-*", "dev"] }
       }`,
    )
  })
  const create = (path: string, body: object) => keyturn.call('POST', `auth/token/${path}`, body, { token })

  test.each([
    { policies: ['admin'] },
    { policies: [' admin'] },
    { policies: ['ADMIN'] },
    { policies: 'dev,\tAdmin' },
    { policies: ['dev', 'Ops-1'] },
    { no_parent: true },
    { no_parent: 1 },
    { no_parent: 't' },
    { ttl: '60m' },
    { ttl: 3600 },
    { ttl: '3600s' },
    { meta: { team: 'red' } },
    { meta: '{"team":"red"}' },
    { meta: ['team=red'] },
  ])('denied: %j', async (body) => {
    const answer = await create('create', body)
    expect(answer.status, answer.text).toBe(403)
  })

  test.each([{ policies: 'team-a,admin' }, { policies: ['team-a', 'admin'] }, { policies: 'team-a, dev,admin' }])(
    'not allowed: %j',
    async (body) => {
      const answer = await create('create-orphan', body)
      expect(answer.status, answer.text).toBe(403)
    },
  )

  test('what is neither stays so', async () => {
    for (const body of [
      { policies: ['dev'], ttl: '2h', no_parent: false, meta: { team: 'blue' } },
      { policies: 'dev' },
    ])
      expect((await create('create', body)).status).toBe(200)
    for (const body of [{ policies: 'team-a, dev' }, { policies: ['team-a', 'dev'] }, { policies: 'dev' }])
      expect((await create('create-orphan', body)).status).toBe(200)
  })
})

describe('login', () => {
  const login = (name: string, password: string) =>
    keyturn.call('POST', `auth/ldap/login/${encodeURIComponent(name)}`, { password }, { token: null })

  test('guesses made all at once are no more than guesses made one by one', async () => {
    const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => login('victim', `guess-${i}`)))
    const tried = answers.filter(({ status }) => status === 400)
    expect(tried).toHaveLength(5)
    expect(answers.filter(({ status }) => status === 403)).toHaveLength(55)
  })

  test('an unknown name costs the directory the same operations as a known one', async () => {
    const cost = async (name: string) => {
      await login(name, 'warm')
      hook.seen.length = 0
      expect((await login(name, 'x')).body.errors).toEqual(['ldap operation failed: failed to bind as user'])
      return hook.seen.map(({ type }) => type).filter((type) => type !== 'UNBIND')
    }
    const known = await cost('carol')
    expect(known).toContain('BIND')
    expect(await cost('no-such-person')).toEqual(known)
  })

  test('what is remembered of failures is small', async () => {
    expect((await login('x'.repeat(513), 'x')).body.errors).toEqual(['username must be at most 512 characters'])
  })

  test('who knows the password logs in as often at once as she likes', async () => {
    const answers = await Promise.all(Array.from({ length: 40 }, () => login('alice', 'alice-secret')))
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  })
})

describe('bodies', () => {
  test('sent without a token they fill no more than their share of the memory, and small ones still come through', async () => {
    const ca = await readFile(keyturn.caFile, 'utf8')
    const megabyte = Buffer.alloc(1024 * 1024, ' ')
    /** Sends most of a large body and never the rest; resolves with whether the server let it. */
    const half = (at: number) =>
      new Promise<boolean>((resolve) => {
        const socket = connect({ port: keyturn.port, host: '127.0.0.1', ca }, () => {
          const framing = at % 2 === 0 ? `Content-Length: ${30 * megabyte.length}` : 'Transfer-Encoding: chunked'
          socket.write(`POST /v1/auth/ldap/login/x HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n`)
          let sent = 0
          const more = () => {
            if (sent++ === 20) return resolve(true)
            if (at % 2 === 1) socket.write('100000\r\n')
            socket.write(megabyte)
            socket.write(at % 2 === 1 ? '\r\n' : '', more)
          }
          more()
        })
        held.push(socket)
        socket.on('error', () => resolve(false)).on('close', () => resolve(false))
      })
    const held: Socket[] = []
    const letIn = await Promise.all(Array.from({ length: 24 }, (_, at) => half(at)))
    expect(letIn.filter(Boolean).length).toBeLessThan(20)
    // How many of those that come at once get through is a matter of the network.
    expect(letIn.filter(Boolean).length).toBeGreaterThan(0)
    expect((await keyturn.call('POST', 'sys/capabilities-self', { path: 'x' })).status).toBe(200)
    for (const socket of held) socket.destroy()
    // Those gone, a large one is taken again.
    const large = { path: 'x', padding: 'x'.repeat(30 * 1024 * 1024) }
    await vi.waitFor(
      async () => expect((await keyturn.call('POST', 'sys/capabilities-self', large)).status).toBe(200),
      {
        timeout: 10_000,
      },
    )
  })
})

describe('bodies made to be laborious, from nobody', () => {
  const megabytes = 30 * 1024 * 1024
  const repeated = (piece: string) => piece.repeat(megabytes / piece.length)
  test.each([
    ['numbers', () => `{"a":[${repeated('1,')}1]}`],
    ['objects', () => `{"a":[${repeated('{},')}1]}`],
    ['names', () => `{${Array.from({ length: 2_000_000 }, (_, n) => `"${n.toString(36)}":1`).join(',')}}`],
    ['as many names as there may be', () => `{${Array.from({ length: 49_000 }, (_, n) => `"n${n}":1`).join(',')}}`],
    ['as many numbers as there may be', () => `{"password":[${'1,'.repeat(49_000)}1]}`],
    ['a list in a text', () => `{"password":"${repeated('aaaa,')}"}`],
    ['quotation marks', () => `{"password":"${repeated('\\"')}"}`],
    ['brackets', () => repeated('[')],
  ])('%s: nobody else waits, and the audit log stays small', async (_what, make) => {
    const log = path.join(keyturn.dataDir, 'audit.log')
    const body = make()
    const sizeBefore = statSync(log).size
    let over = false
    const laborious = keyturn.call('POST', 'auth/ldap/login/x', body, { token: null }).finally(() => (over = true))
    let worstMs = 0
    while (!over) {
      const startMs = performance.now()
      expect((await keyturn.call('GET', 'sys/health', undefined, { token: null })).status).toBe(200)
      worstMs = Math.max(worstMs, performance.now() - startMs)
    }
    expect((await laborious).status).toBe(400)
    // Walked through value by value, the smallest of these took more than half a minute.
    expect(worstMs).toBeLessThan(15_000)
    expect(statSync(log).size - sizeBefore).toBeLessThan(10_000)
  })
})

describe('floods of logins without a token', () => {
  const login = (name: string, password: string) =>
    keyturn.call('POST', `auth/ldap/login/${name}`, { password }, { token: null })

  const rssMb = async (pid: number) =>
    Number(/^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024

  /** A connection that sends logins of this size without waiting for answers, as many as are taken. */
  async function flood(count: number, pad: number) {
    const body = JSON.stringify({ password: 'x', pad: 'x'.repeat(pad) })
    const ca = await readFile(keyturn.caFile, 'utf8')
    const socket = connect({ port: keyturn.port, host: '127.0.0.1', ca })
    socket.on('error', () => undefined).resume()
    await once(socket, 'secureConnect')
    for (let i = 0; i < count; i++)
      socket.write(
        `POST /v1/auth/ldap/login/flood-${i} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
    return socket
  }

  test('on one connection cost a little memory, and leave room for others', async () => {
    await login('alice', 'alice-secret')
    const held = Promise.withResolvers<void>()
    hook.handler = async ({ type, filter }): Promise<HookAnswer> => {
      if (type === 'SEARCH' && filter.includes('flood-')) await held.promise
      return 'CONTINUE'
    }
    const before = await rssMb(keyturn.pid)
    const socket = await flood(4000, 60_000)
    try {
      await vi.waitFor(() => expect(hook.seen.some(({ filter }) => filter.includes('flood-'))).toBe(true), 10_000)
      const begunMs = performance.now()
      expect((await login('alice', 'alice-secret')).status).toBe(200)
      expect(performance.now() - begunMs).toBeLessThan(10_000)
      // Of 240 MB the most part stays with the sender.
      expect(socket.writableLength).toBeGreaterThan(200 * 1024 * 1024)
      expect((await rssMb(keyturn.pid)) - before).toBeLessThan(150)
    } finally {
      held.resolve()
      socket.destroy()
    }
  })

  test('end with their connection', async () => {
    hook.handler = () => 'CONTINUE'
    hook.seen.length = 0
    const socket = await flood(20_000, 0)
    await vi.waitFor(() => expect(hook.seen.some(({ filter }) => filter.includes('flood-'))).toBe(true), 10_000)
    socket.destroy()
    await once(socket, 'close')
    for (let i = 0; i < 3; i++) expect((await login('alice', 'alice-secret')).status).toBe(200)
    const asked = new Set(hook.seen.map(({ filter }) => /flood-\d+/.exec(filter)?.[0])).size
    expect(asked).toBeLessThan(2000)
  })

  test('on many connections are told to come again, and whoever comes then is served', async () => {
    const held = Promise.withResolvers<void>()
    hook.handler = async ({ type, filter }): Promise<HookAnswer> => {
      if (type === 'SEARCH' && filter.includes('many-')) await held.promise
      return 'CONTINUE'
    }
    const answers = Array.from({ length: 600 }, (_, i) => login(`many-${i}`, 'x'))
    const refused = await Promise.race(answers)
    held.resolve()
    expect([refused.status, refused.body.errors]).toEqual([503, ['too many logins are under way; try again soon']])
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(5)
    const statuses = (await Promise.all(answers)).map(({ status }) => status)
    expect(new Set(statuses)).toEqual(new Set([400, 503]))
    expect(statuses.filter((status) => status === 400).length).toBeGreaterThanOrEqual(512)
    expect((await login('alice', 'alice-secret')).status).toBe(200)
  })
})

describe('mounts', () => {
  test('an auth mount is not removed past the sudo that sys/auth asks for', async () => {
    await done('POST', 'sys/auth/staff', { type: 'ldap' })
    const token = await tokenWith('mounter', 'path "sys/mounts/*" { capabilities = ["read", "update", "delete"] }')
    const answer = await keyturn.call('DELETE', 'sys/mounts/auth/staff', undefined, { token })
    expect(answer.status, answer.text).toBe(400)
    expect((await keyturn.call('GET', 'sys/auth/staff')).status).toBe(200)
    await done('DELETE', 'sys/auth/staff')
  })

  test('a token dies with the mount of its login, also when another is made at its path', async () => {
    const config = { url: slapd.url, userdn: people, userattr: 'uid' }
    await done('POST', 'sys/auth/guests', { type: 'ldap' })
    await done('POST', 'auth/guests/config', config)
    const login = await keyturn.call('POST', 'auth/guests/login/alice', { password: 'alice-secret' }, { token: null })
    const token = login.body.auth.client_token
    expect((await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).status).toBe(200)
    await done('DELETE', 'sys/auth/guests')
    await done('POST', 'sys/auth/guests', { type: 'ldap' })
    expect((await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).status).toBe(403)
  })
})

describe('tokens', () => {
  test('a token of one use, used many times at once, serves one request', async () => {
    const made = await keyturn.call('POST', 'auth/token/create', { policies: ['default'], num_uses: 1 })
    const token = made.body.auth.client_token
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
  })

  test('once one of several who revoke a token is told so, nothing that stems from it works', async () => {
    const make = async (parent?: string) => {
      const options = parent === undefined ? {} : { token: parent }
      return (await keyturn.call('POST', 'auth/token/create', {}, options)).body.auth.client_token as string
    }
    const top = await make()
    const child = await make(top)
    const grandchildren = await Promise.all(Array.from({ length: 250 }, () => make(child)))
    const revoke = () => keyturn.call('POST', 'auth/token/revoke', { token: top })
    const all = Array.from({ length: 4 }, revoke)
    expect((await Promise.race(all)).status).toBe(204)
    const after = await Promise.all(
      grandchildren.slice(-40).map((token) => keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })),
    )
    expect(after.map(({ status }) => status)).toEqual(after.map(() => 403))
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual([204, 204, 204, 204])
  })

  test.each(['keyturn-controller', 'Keyturn-Controller', ' keyturn-controller '])(
    'nobody gets the policy of the controller, not as "%s"',
    async (name) => {
      const asked = await keyturn.call('POST', 'auth/token/create', { policies: [name] })
      expect(asked.status, asked.text).toBe(400)
      const written = await keyturn.call('POST', `sys/policies/acl/${encodeURIComponent(name)}`, {
        policy: 'path "*" { capabilities = ["read"] }',
      })
      expect(written.status, written.text).toBe(400)
    },
  )

  test.each(['keyturn-controller', 'root'])('a group that maps to %s lets nobody in', async (policy) => {
    await done('POST', 'auth/ldap/users/bob', { policies: [policy] })
    const answer = await keyturn.call('POST', 'auth/ldap/login/bob', { password: 'bob-secret' }, { token: null })
    expect(answer.status, answer.text).toBe(400)
    expect(answer.body.auth).toBeUndefined()
    await done('DELETE', 'auth/ldap/users/bob')
  })

  test("the controller's token and its headers are worth nothing over the network", async () => {
    const token = await keyturn.controllerToken()
    expect((await keyturn.call('GET', 'sys/mounts', undefined, { token })).status).toBe(403)
    const headers = { 'x-keyturn-principal': 'kubernetes:payments', 'x-keyturn-owner': 'cr:1' }
    expect((await keyturn.call('GET', 'sys/mounts', undefined, { headers })).status).toBe(403)
    // Nor are the headers without that token, over the socket.
    expect((await keyturn.call('GET', 'sys/mounts', undefined, { headers, socket: true })).status).toBe(403)
    expect((await keyturn.call('GET', 'sys/mounts', undefined, { token, headers, socket: true })).status).toBe(200)
  })
})

describe('tenants', () => {
  const as = async (namespace: string, uid: string) => ({
    token: await keyturn.controllerToken(),
    socket: true,
    headers: { 'x-keyturn-principal': `kubernetes:${namespace}`, 'x-keyturn-owner': `cr:${uid}` },
  })
  beforeAll(async () => {
    const entry = (namespace: string, dns: string[]) => ({
      principals: [`kubernetes:${namespace}`],
      kinds: ['StaticRole'],
      allowed_dns: dns,
    })
    const entries = [
      entry('red', [`uid=lib-1,${services}`]),
      entry('blue', [`uid=lib-2,${services}`, `uid=lib-3,${services}`]),
    ]
    const options = { token: await keyturn.controllerToken(), socket: true }
    expect((await keyturn.call('POST', 'sys/tenancy/ldap', { entries }, options)).status).toBe(204)
  })

  test('the name of an account is not taken from its tenant by a role on another DN', async () => {
    const squat = { username: 'lib-2', dn: `uid=lib-1,${services}`, rotation_period: '24h' }
    const red = await keyturn.call('POST', 'ldap/static-role/red/app', squat, await as('red', 'r1'))
    expect(red.status, red.text).toBe(204)
    const own = { username: 'lib-2', rotation_period: '24h' }
    const blue = await keyturn.call('POST', 'ldap/static-role/blue/app', own, await as('blue', 'b1'))
    expect(blue.status, blue.text).toBe(204)
    // The account itself is still nobody's but the first one's.
    const again = { username: 'x', dn: `UID=LIB-2, ${services}`, rotation_period: '24h' }
    const twice = await keyturn.call('POST', 'ldap/static-role/blue/again', again, await as('blue', 'b2'))
    expect(twice.status, twice.text).toBe(400)
  })

  test('the controller, asking for one tenant, neither reads nor turns the password of another', async () => {
    const own = { username: 'lib-3', rotation_period: '24h' }
    expect((await keyturn.call('POST', 'ldap/static-role/blue/other', own, await as('blue', 'b3'))).status).toBe(204)
    const stranger = await as('red', 'r1')
    expect((await keyturn.call('GET', 'ldap/static-cred/blue/other', undefined, stranger)).status).toBe(400)
    expect((await keyturn.call('POST', 'ldap/rotate-role/blue/other', {}, stranger)).status).toBe(400)
    // Nor does another resource of the same namespace.
    const sibling = await as('blue', 'b4')
    expect((await keyturn.call('GET', 'ldap/static-cred/blue/other', undefined, sibling)).status).toBe(400)
    const owner = await as('blue', 'b3')
    expect(
      (await keyturn.call('GET', 'ldap/static-cred/blue/other', undefined, owner)).body.data.credential_version,
    ).toBe(1)
  })
})
