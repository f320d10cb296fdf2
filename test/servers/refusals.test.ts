import { readdirSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, Route } from '../../src/engine/backend.ts'
import { findRoute } from '../../src/engine/router.ts'
import { allBackends } from '../support/all-backends.ts'
import { type Keyturn, type Reply, startKeyturn } from '../support/keyturn.ts'
import { ANY_TEXT, HTTP_REFUSALS, type HttpRefusal, LIMITED_POLICY, OWNED, OWNER } from '../support/refusals-http.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { openWire, spelled, type Wire } from '../support/wire.ts'

// Every refused input of every endpoint, over the real API: what is sent, the status, a fragment of the message; and nothing has changed.

let slapd: Slapd
let keyturn: Keyturn
let wire: Wire
const tokens: Record<'root' | 'default' | 'limited' | 'controller', string> = {
  root: '',
  default: '',
  limited: '',
  controller: '',
}

beforeAll(async () => {
  slapd = await startSlapd()
  keyturn = await startKeyturn()
  wire = await openWire(keyturn)
  const write = async (at: string, body: unknown, status = 204): Promise<Reply> => {
    const answer = await keyturn.call('POST', at, body)
    expect(answer.status, `${at}: ${answer.text}`).toBe(status)
    return answer
  }
  const people = {
    url: slapd.url,
    userdn: `ou=people,${SUFFIX}`,
    userattr: 'uid',
    binddn: `cn=svc-reader,ou=services,${SUFFIX}`,
    bindpass: 'svc-reader-secret',
  }
  await write('ldap/config', {
    url: slapd.url,
    binddn: `cn=svc-manager,ou=services,${SUFFIX}`,
    bindpass: 'svc-manager-secret',
    userdn: `ou=services,${SUFFIX}`,
    userattr: 'uid',
  })
  await write('ldap/static-role/team/app', { username: 'static-1', rotation_period: '24h' })
  await write('sys/mounts/taken', { type: 'ldap', description: 'taken' })
  await write('auth/ldap/config', people)
  await write('auth/ldap/groups/engineers', { policies: 'staff' })
  await write('auth/ldap/users/alice', { policies: 'alice', groups: 'local' })
  const mounts: Record<string, object | undefined> = {
    bare: undefined,
    taken: { ...people },
    lost: { ...people, url: 'ldap://127.0.0.1:1' },
    refused: { ...people, bindpass: 'wrong' },
    bound: { ...people, token_bound_cidrs: '192.0.2.0/24' },
    aliasless: { ...people, userattr: 'employeeType', userfilter: '(uid={{.Username}})' },
    rootly: people,
    locked: people,
  }
  for (const [name, config] of Object.entries(mounts)) {
    await write(`sys/auth/${name}`, { type: 'ldap', description: name })
    if (config) expect([200, 204]).toContain((await keyturn.call('POST', `auth/${name}/config`, config)).status)
  }
  await write('auth/rootly/users/alice', { policies: 'root' })
  for (let i = 0; i < 5; i++)
    await keyturn.call('POST', 'auth/locked/login/bob', { password: 'wrong' }, { token: null })
  // The first refusal of the service's password closes the mount's guard; the rows meet it closed.
  await keyturn.call('POST', 'auth/refused/login/alice', { password: 'x' }, { token: null })
  await keyturn.call('POST', 'auth/lost/login/alice', { password: 'x' }, { token: null })
  await write('sys/storage/snapshot', { file: 'there.db' }, 200)
  await write('sys/policies/acl/limited', { policy: LIMITED_POLICY })
  const issued = async (policies: string) =>
    (await write('auth/token/create', { policies }, 200)).body.auth.client_token as string
  tokens.root = await keyturn.rootToken()
  tokens.default = await issued('default')
  tokens.limited = await issued('limited')
  tokens.controller = await keyturn.controllerToken()
  for (const [at, body] of OWNED) {
    const made = await ask({ method: 'POST', path: at, body, as: 'controller', owner: OWNER, status: 0, fragment: '' })
    expect([200, 204], `${at}: ${made.text}`).toContain(made.status)
  }
})
afterAll(async () => {
  wire?.close()
  await keyturn?.stop()
  await slapd?.stop()
})

function ask({ method, path: at, query, body, as = 'root', owner }: HttpRefusal): Promise<Reply> {
  return wire.send({
    method,
    target: `${spelled(at)}${query === undefined ? '' : `?${query}`}`,
    socket: as === 'controller',
    headers: {
      ...(as !== 'nobody' && { 'x-vault-token': tokens[as] }),
      ...(owner !== undefined && { 'x-keyturn-owner': owner }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
}

const READ = [
  'GET ldap/config',
  'GET ldap/static-role/team/app',
  'LIST ldap/static-role',
  'GET ldap/static-role/new',
  'GET auth/ldap/config',
  'LIST auth/ldap/groups',
  'GET auth/ldap/groups/engineers',
  'LIST auth/ldap/users',
  'GET auth/ldap/users/alice',
  'LIST auth/token/accessors',
  'GET sys/mounts',
  'GET sys/auth',
  'GET sys/mounts/ldap/tune',
  'GET sys/auth/ldap/tune',
  'LIST sys/policies/acl',
  'GET sys/policies/acl/default',
  'GET sys/policies/acl/owned',
  'GET auth/owned/config',
  'GET auth/ldap/groups/owned',
  'GET auth/ldap/users/owned',
  'GET sys/events',
]

/** All that a refused request could have changed. */
async function everything(): Promise<unknown[]> {
  const reads = READ.map(async (line) => {
    const [method = '', at = ''] = line.split(' ')
    const { status, body } = await wire.send({ method, target: `/v1/${at}`, headers: { 'x-vault-token': tokens.root } })
    return { line, status, data: body.data }
  })
  const tenancy = ask({ method: 'GET', path: 'sys/tenancy/ldap', as: 'controller', status: 200, fragment: '' })
  const cred = await keyturn.call('GET', 'ldap/static-cred/team/app')
  const files = readdirSync(path.join(keyturn.dataDir, 'snapshots')).sort()
  return [...(await Promise.all(reads)), (await tenancy).body.data, { ...cred.body.data, ttl: 0 }, files]
}

function textOf(row: HttpRefusal): string {
  const body = row.body === undefined ? '' : JSON.stringify(row.body)
  const sent = `${row.method} ${row.path.slice(0, 60)}${row.query ? `?${row.query}` : ''} ${body.slice(0, 120)}`
  return `${sent} as ${row.as ?? 'root'}`
}

test('the world before is what it should be', async () => {
  const world = JSON.stringify(await everything())
  expect(world).toContain('engineers')
  expect(world).toContain('limited')
  expect(world).toContain('there.db')
})

test('every refused input is refused in its words and changes nothing', { timeout: 300_000 }, async () => {
  let before = await everything()
  const wrong: string[] = []
  for (const row of HTTP_REFUSALS) {
    const { status, text, body } = await ask(row)
    const errors: unknown = body?.errors
    const told = Array.isArray(errors) && errors.every((error) => typeof error === 'string') ? errors.join('\n') : ''
    if (status !== row.status || !told.includes(row.fragment))
      wrong.push(`${textOf(row)}\n    wanted ${row.status} ${row.fragment}, got ${status} ${text.slice(0, 200)}`)
    const after = await everything()
    if (JSON.stringify(after) !== JSON.stringify(before)) wrong.push(`${textOf(row)}\n    changed something`)
    before = after
  }
  expect(wrong.join('\n')).toBe('')
  console.log(`${HTTP_REFUSALS.length} refused inputs`)
})

describe('all routes', () => {
  let backends: ReadonlyMap<string, Backend>
  let routes: { mount: string; route: Route; path: string }[]
  beforeAll(async () => {
    backends = await allBackends()
    routes = [...backends].flatMap(([mount, backend]) =>
      backend.routes.map((route) => ({ mount, route, path: `${mount}${sample(route.pattern)}` })),
    )
    // A sample that an earlier route takes says nothing about this one.
    for (const { mount, route, path: at } of routes)
      expect(routeOf(at)?.route.pattern, `${mount}${route.pattern}`).toBe(route.pattern)
  })

  function sample(pattern: string): string {
    return pattern
      .replace(/:\w+\+/g, 'zz/x')
      .replace(/:\w+\*/g, 'zz')
      .replace(/:\w+/g, 'zz')
  }
  function routeOf(at: string): { mount: string; route: Route } | undefined {
    const mount = [...backends.keys()].filter((m) => at.startsWith(m)).sort((a, b) => b.length - a.length)[0]
    const backend = mount === undefined ? undefined : backends.get(mount)
    const match = mount !== undefined && backend && findRoute(backend, at.slice(mount.length))
    return match && mount !== undefined ? { mount, route: match.route } : undefined
  }

  test('each field of each write route has a refusal, or takes any text', () => {
    const refused = new Set<string>()
    for (const { method, path: at, body } of HTTP_REFUSALS) {
      const found = method === 'POST' && typeof body === 'object' && body !== null ? routeOf(at) : undefined
      if (found) for (const name of Object.keys(body ?? {})) refused.add(`${found.mount}${found.route.pattern} ${name}`)
    }
    const missing: string[] = []
    for (const { mount, route } of routes) {
      if (!route.write) continue
      const anyText = ANY_TEXT[`${mount}${route.pattern}`] ?? []
      for (const name of route.body?.names ?? []) {
        if (anyText.includes(name)) expect(() => route.body?.parse({ [name]: 'any words, at all {' })).not.toThrow()
        else if (!refused.has(`${mount}${route.pattern} ${name}`)) missing.push(`${mount}${route.pattern} ${name}`)
      }
    }
    expect(missing).toEqual([])
    for (const [pattern, names] of Object.entries(ANY_TEXT))
      for (const name of names)
        expect(routes.find(({ mount, route }) => `${mount}${route.pattern}` === pattern)?.route.body?.names).toContain(
          name,
        )
  })

  test('each field refuses an object in an object and names itself', async () => {
    const before = await everything()
    const wrong: string[] = []
    let count = 0
    for (const { mount, route, path: at } of routes) {
      const method = route.write ? 'POST' : undefined
      for (const name of method ? (route.body?.names ?? []) : []) {
        // Any object is well-formed here; what is in it has rows of its own.
        if (name === 'config' || name === 'user_lockout_config') continue
        const as = mount === 'sys/' && at.includes('tenancy') ? 'controller' : 'root'
        const row = {
          method: 'POST',
          path: at,
          body: { [name]: { nested: {} } },
          as,
          status: 400,
          fragment: name,
        } as const
        const { status, text } = await ask(row)
        count += 1
        if (status !== 400 || !text.includes(name)) wrong.push(`${textOf(row)} got ${status} ${text.slice(0, 200)}`)
      }
    }
    expect(wrong.join('\n')).toBe('')
    expect(await everything()).toEqual(before)
    expect(count).toBeGreaterThan(120)
  })

  const METHODS = { read: 'GET', list: 'LIST', write: 'POST', delete: 'DELETE' } as const
  const OPERATIONS = ['read', 'list', 'write', 'delete'] as const

  test('each operation without a token, with an unknown one, or without a right is 403; each that is not there is 405', async () => {
    const before = await everything()
    const wrong: string[] = []
    const open: string[] = []
    for (const { mount, route, path: at } of routes) {
      for (const operation of OPERATIONS) {
        const method = METHODS[operation]
        const send = (headers: Record<string, string>) => wire.send({ method, target: spelled(at), headers })
        if (!route[operation]) {
          const { status } = await send({ 'x-vault-token': tokens.root })
          if (status !== 405) wrong.push(`${method} ${at}: wanted 405, got ${status}`)
          continue
        }
        if (route.unauthenticated) {
          open.push(`${operation} ${mount}${route.pattern}`)
          continue
        }
        const strangers = [{ 'x-vault-token': 'kts.unknown' }, { authorization: 'Bearer kts.unknown' }]
        for (const headers of route.anonymous === 'allowed' ? strangers : [{}, ...strangers]) {
          const { status, text } = await send(headers)
          if (status !== 403 || !text.includes('permission denied'))
            wrong.push(`${method} ${at} with ${JSON.stringify(headers)}: wanted 403, got ${status} ${text}`)
        }
        const isEverybodys = /^(auth\/token\/(lookup|renew|revoke)-self|sys\/capabilities-self)$/.test(at)
        const { status, text } = isEverybodys
          ? { status: 403, text: '' }
          : await send({ 'x-vault-token': tokens.default })
        if (status !== 403) wrong.push(`${method} ${at} as default: wanted 403, got ${status} ${text}`)
      }
    }
    expect(wrong.join('\n')).toBe('')
    expect(open.sort()).toEqual([
      'read sys/health',
      'read sys/init',
      'read sys/leader',
      'read sys/seal-status',
      'write auth/ldap/login/:username+',
      'write sys/init',
    ])
    expect(await everything()).toEqual(before)
  })
})

describe('on the wire', () => {
  const root = () => ({ 'x-vault-token': tokens.root })
  const json = { 'content-type': 'application/json' }
  const config = '/v1/ldap/config'
  type Row = [string, () => Parameters<Wire['send']>[0], number, string]
  const rows: Row[] = [
    ['malformed JSON', () => ({ method: 'POST', target: config, body: '{"binddn":', headers: root() }), 400, 'JSON'],
    ['an array', () => ({ method: 'POST', target: config, body: '[]', headers: root() }), 400, 'JSON object'],
    ['a text', () => ({ method: 'POST', target: config, body: '"x"', headers: root() }), 400, 'JSON object'],
    ['a number', () => ({ method: 'PUT', target: config, body: '1', headers: root() }), 400, 'JSON object'],
    ['null', () => ({ method: 'PUT', target: config, body: 'null', headers: root() }), 400, 'JSON object'],
    [
      'no UTF-8',
      () => ({ method: 'POST', target: config, body: Buffer.from('7b2261223a22ff227d', 'hex'), headers: root() }),
      400,
      'UTF-8',
    ],
    [
      'a member __proto__',
      () => ({ method: 'POST', target: config, body: '{"__proto__":{"a":1}}', headers: root() }),
      400,
      '__proto__',
    ],
    [
      'nesting without end',
      () => ({ method: 'POST', target: config, body: `{"a":${'['.repeat(200)}${']'.repeat(200)}}`, headers: root() }),
      400,
      'nested',
    ],
    [
      'a form with an array',
      () => ({
        method: 'POST',
        target: config,
        body: '[1]',
        headers: { ...root(), 'content-type': 'application/x-www-form-urlencoded' },
      }),
      400,
      'JSON object',
    ],
    [
      'a form with a wrong field',
      () => ({
        method: 'POST',
        target: config,
        body: 'starttls=perhaps',
        headers: { ...root(), 'content-type': 'application/x-www-form-urlencoded' },
      }),
      400,
      'starttls',
    ],
    [
      'text that is no JSON, called text',
      () => ({ method: 'POST', target: config, body: 'a=b', headers: { ...root(), 'content-type': 'text/plain' } }),
      400,
      'JSON',
    ],
    [
      'a body that is too large',
      () => ({ method: 'POST', target: config, body: '{', declaredBytes: 32 * 1024 * 1024 + 1, headers: root() }),
      413,
      'larger',
    ],
    ['list=maybe', () => ({ method: 'GET', target: '/v1/ldap/static-role?list=maybe', headers: root() }), 400, 'list'],
    ['..', () => ({ method: 'GET', target: '/v1/ldap/../sys/mounts', headers: root() }), 400, '".."'],
    ['.. encoded', () => ({ method: 'GET', target: '/v1/ldap/%2e%2e/config', headers: root() }), 400, '".."'],
    ['a zero byte', () => ({ method: 'GET', target: '/v1/ldap/a%00b', headers: root() }), 400, 'printed'],
    ['a line break', () => ({ method: 'POST', target: '/v1/ldap/a%0ab', headers: root() }), 400, 'printed'],
    ['a lone %', () => ({ method: 'GET', target: '/v1/ldap/a%', headers: root() }), 400, 'percent'],
    ['no UTF-8 in the path', () => ({ method: 'GET', target: '/v1/ldap/%ff', headers: root() }), 400, 'percent'],
    ['a write with a slash at the end', () => ({ method: 'POST', target: `${config}/`, headers: root() }), 400, '"/"'],
    ['a path outside /v1', () => ({ method: 'GET', target: '/v2/ldap', headers: root() }), 404, '/v1/'],
    ['an unknown mount', () => ({ method: 'GET', target: '/v1/kv/a', headers: root() }), 404, 'no handler for route'],
    [
      'an unknown mount, written',
      () => ({ method: 'POST', target: '/v1/kv/a', headers: root(), body: '{}' }),
      404,
      'no handler for route',
    ],
    [
      'an unknown route',
      () => ({ method: 'GET', target: '/v1/ldap/nonsense', headers: root() }),
      404,
      'route entry not found',
    ],
    ['an unknown mount, by nobody', () => ({ method: 'GET', target: '/v1/kv/a' }), 403, 'permission denied'],
    [
      'an unknown route, by somebody without rights',
      () => ({ method: 'GET', target: '/v1/ldap/nonsense', headers: { 'x-vault-token': tokens.default } }),
      403,
      'permission denied',
    ],
    ['OPTIONS', () => ({ method: 'OPTIONS', target: config, headers: root() }), 405, 'unsupported'],
    [
      'a PATCH without its type',
      () => ({ method: 'PATCH', target: config, headers: root(), body: '{}' }),
      415,
      'merge',
    ],
    [
      'a PATCH as JSON',
      () => ({ method: 'PATCH', target: config, headers: { ...root(), ...json }, body: '{}' }),
      415,
      'merge',
    ],
    [
      'a PATCH',
      () => ({
        method: 'PATCH',
        target: config,
        headers: { ...root(), 'content-type': 'application/merge-patch+json' },
        body: '{}',
      }),
      405,
      'unsupported',
    ],
    [
      'another namespace',
      () => ({ method: 'GET', target: config, headers: { ...root(), 'x-vault-namespace': 'team' } }),
      404,
      'namespace',
    ],
    [
      'wrapping',
      () => ({ method: 'GET', target: config, headers: { ...root(), 'x-vault-wrap-ttl': '60' } }),
      400,
      'x-vault-wrap-ttl',
    ],
    [
      'a principal over TCP',
      () => ({ method: 'GET', target: config, headers: { ...root(), 'x-keyturn-principal': 'kubernetes:a' } }),
      403,
      'permission denied',
    ],
    [
      'an owner over TCP',
      () => ({ method: 'POST', target: config, headers: { ...root(), 'x-keyturn-owner': 'cr:1' }, body: '{}' }),
      403,
      'permission denied',
    ],
    [
      'a principal on the socket from another than the controller',
      () => ({
        method: 'GET',
        target: config,
        socket: true,
        headers: { ...root(), 'x-keyturn-principal': 'kubernetes:a' },
      }),
      403,
      'permission denied',
    ],
    [
      'an owner on the socket from another than the controller',
      () => ({
        method: 'POST',
        target: '/v1/auth/ldap/groups/mine',
        socket: true,
        headers: { ...root(), 'x-keyturn-owner': 'cr:1' },
        body: '{}',
      }),
      403,
      'permission denied',
    ],
    [
      "the controller's token over TCP",
      () => ({ method: 'GET', target: config, headers: { 'x-vault-token': tokens.controller } }),
      403,
      'permission denied',
    ],
  ]

  test.each(rows)('%s', async (_, request, status, fragment) => {
    const before = await everything()
    const answer = await wire.send(request())
    expect(answer.status, answer.text).toBe(status)
    expect(Array.isArray(answer.body.errors)).toBe(true)
    expect(answer.body.errors.join()).toContain(fragment)
    expect(answer.headers['content-type']).toBe('application/json')
    expect(await everything()).toEqual(before)
  })

  test('what is not refused: the root namespace, every content type around JSON, an empty body', async () => {
    for (const headers of [{ 'x-vault-namespace': 'root/' }, { 'content-type': 'text/plain' }, json, {}]) {
      const answer = await wire.send({
        method: 'POST',
        target: '/v1/sys/capabilities-self',
        headers: { ...root(), ...headers },
        body: '{"paths":"a"}',
      })
      expect(answer.status, answer.text).toBe(200)
    }
    const renewed = await wire.send({
      method: 'PUT',
      target: '/v1/auth/token/renew-self',
      headers: { 'x-vault-token': tokens.default },
    })
    expect(renewed.status, renewed.text).toBe(200)
  })
})
