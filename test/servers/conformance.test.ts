import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type CallOptions, type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { binds, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { type Hook, type HookAnswer, startHook } from '../support/slapd-hook.ts'

// The conformance list as far as this version goes and other tests do not show it: both dialects, shapes, inputs, names, tokens.

let slapd: Slapd
let hook: Hook
let work: string
let keyturn: Keyturn
let root: string
const MANAGER = { binddn: `cn=admin,${SUFFIX}`, bindpass: 'admin-secret' }
const people = () => ({ url: slapd.url, userdn: `ou=people,${SUFFIX}`, userattr: 'uid', ...MANAGER })

beforeAll(async () => {
  work = await mkdtemp(path.join(tmpdir(), 'kt-hook-'))
  hook = await startHook(path.join(work, 'hook'), () => 'CONTINUE')
  slapd = await startSlapd({ BULK: '24', NULL_BIND: '1', HOOK: path.join(work, 'hook') })
  keyturn = await startKeyturn()
  root = await keyturn.rootToken()
  await done('POST', 'ldap/config', { url: slapd.url, userattr: 'uid', userdn: `ou=bulk,${SUFFIX}`, ...MANAGER })
})
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
  await hook?.[Symbol.asyncDispose]()
  await rm(work, { recursive: true, force: true })
})

/** A write that has nothing to say. */
async function done(method: string, at: string, body?: unknown, options?: CallOptions): Promise<void> {
  const { status, text } = await keyturn.call(method, at, body, options)
  expect([status, text], `${method} ${at}`).toEqual([204, ''])
}

/** The specification's own header, the peers', and a bearer. */
const spec: CallOptions = { token: null, headers: {} }
const dialects = () => ({
  spec: { token: null, headers: { 'x-service-token': root } },
  peer: { token: null, headers: { 'x-vault-token': root } },
  bearer: { token: null, headers: { authorization: `Bearer ${root}` } },
  both: { token: null, headers: { 'x-service-token': root, 'x-vault-request': 'true' } },
})

let mounts = 0
async function login(config: Record<string, unknown> = {}): Promise<string> {
  const name = `people-${++mounts}`
  await done('POST', `sys/auth/${name}`, { type: 'ldap' })
  const written = await keyturn.call('POST', `auth/${name}/config`, { ...people(), ...config })
  expect([200, 204], written.text).toContain(written.status)
  return name
}
const enter = (name: string, password = 'alice-secret', user = 'alice') =>
  keyturn.call('POST', `auth/${name}/login/${user}`, { password }, spec)

let accounts = 0
/** An account that no test has used yet. */
const account = () => ({ username: `bulk-${++accounts}`, rotation_period: '24h' })

describe('methods', () => {
  test('POST and PUT are the same, LIST and GET ?list=true are the same', async () => {
    for (const method of ['POST', 'PUT']) await done(method, `ldap/static-role/methods/${method}`, account())
    for (const [method, at] of [
      ['LIST', 'ldap/static-role/methods'],
      ['LIST', 'ldap/static-role/methods/'],
      ['GET', 'ldap/static-role/methods?list=true'],
      ['GET', 'ldap/static-role/methods/?list=1'],
    ] as const) {
      const { status, body } = await keyturn.call(method, at)
      expect([status, body.data], at).toEqual([200, { keys: ['post', 'put'] }])
    }
    expect((await keyturn.call('HEAD', 'ldap/static-role/methods/post')).status).toBe(200)
  })

  test.each([
    'ldap/static-role/absent',
    'auth/ldap/groups/absent',
    'auth/ldap/users/absent',
    'sys/policies/acl/absent',
  ])('nothing at %s', async (at) => {
    const read = await keyturn.call('GET', at)
    expect([read.status, read.body]).toEqual([404, { errors: [] }])
    await done('DELETE', at)
    await done('DELETE', at)
  })

  test('nothing configured, nothing to list', async () => {
    await done('POST', 'sys/mounts/empty', { type: 'ldap' })
    for (const options of Object.values(dialects()))
      for (const [method, at] of [
        ['GET', 'empty/config'],
        ['LIST', 'empty/static-role'],
        ['GET', 'empty/static-role'],
        ['GET', 'empty/static-role?list=true'],
        ['LIST', 'ldap/static-role/no/such/folder'],
        ['LIST', 'auth/ldap/groups'],
        ['LIST', 'auth/ldap/users'],
      ] as const) {
        const { status, body } = await keyturn.call(method, at, undefined, options)
        expect([status, body], `${method} ${at}`).toEqual([404, { errors: [] }])
      }
    await done('DELETE', 'sys/mounts/empty')
    await done('DELETE', 'sys/mounts/empty')
  })

  test('every write and delete answers 204 with an empty body', async () => {
    await done('PUT', 'ldap/config', { request_timeout: 90 })
    await done('POST', 'ldap/static-role/writes', account())
    await done('POST', 'ldap/static-role/writes', { rotation_period: '12h' })
    await done('PUT', 'ldap/rotate-role/writes')
    await done('DELETE', 'ldap/static-role/writes')
    await done('POST', 'auth/ldap/groups/g', { policies: 'a' })
    await done('POST', 'auth/ldap/users/u', { policies: 'a', groups: 'g' })
    await done('DELETE', 'auth/ldap/groups/g')
    await done('DELETE', 'auth/ldap/users/u')
    await done('POST', 'sys/policies/acl/p', { policy: 'path "a" { capabilities = ["read"] }' })
    await done('POST', 'sys/auth/ldap/tune', { description: 'people' })
    await done('DELETE', 'sys/policies/acl/p')
    // An unknown field is ignored; it is told only where there is a body.
    await done('POST', 'ldap/config', { rotation_policy: 'x' })
    const told = await keyturn.call('POST', 'sys/capabilities-self', { paths: 'a', colour: 'red' })
    expect(told.body.warnings).toEqual([expect.stringContaining('colour')])
  })
})

describe('dialects', () => {
  const at = 'ldap/static-role/dialects/app'
  beforeAll(async () => done('POST', at, account()))

  test('D1: the first of X-Service-Token, X-Vault-Token and bearer counts', async () => {
    const wrong = 'kts.wrong'
    const status = async (headers: Record<string, string>) =>
      (await keyturn.call('GET', at, undefined, { token: null, headers })).status
    expect(await status({ 'x-service-token': root, 'x-vault-token': wrong, authorization: `Bearer ${wrong}` })).toBe(
      200,
    )
    expect(await status({ 'x-service-token': wrong, 'x-vault-token': root })).toBe(403)
    expect(await status({ 'x-vault-token': root, authorization: `Bearer ${wrong}` })).toBe(200)
    expect(await status({ 'x-vault-token': wrong, authorization: `Bearer ${root}` })).toBe(403)
    expect(await status({ authorization: `bearer ${root}` })).toBe(200)
  })

  test.each(['spec', 'peer', 'bearer', 'both'] as const)('D3, D4: a role and its credential, %s', async (name) => {
    const options = dialects()[name]
    const role = (await keyturn.call('GET', at, undefined, options)).body
    for (const shape of [role, role.data]) {
      expect(shape).toMatchObject({ username: expect.stringMatching(/^bulk-/), rotation_period: 86_400 })
      expect(shape.dn).toMatch(/^uid=bulk-/)
      expect(shape.last_service_rotation).toBe(shape.last_vault_rotation)
      expect(Number.isNaN(Date.parse(shape.last_vault_rotation))).toBe(false)
    }
    const cred = (await keyturn.call('GET', 'ldap/static-cred/dialects/app', undefined, options)).body
    for (const shape of [cred, cred.data]) {
      expect(shape).toMatchObject({ username: role.username, dn: role.dn, rotation_period: 86_400, last_password: '' })
      expect(shape.password).toMatch(/^[A-Za-z0-9]{64}$/)
      expect(shape.last_service_rotation).toBe(role.last_service_rotation)
      expect(shape.last_vault_rotation).toBe(role.last_service_rotation)
      expect(shape.ttl).toBeGreaterThan(86_000)
    }
    // The members of the envelope are there, and say that there is no lease.
    expect(cred).toMatchObject({
      request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      lease_id: '',
      lease_duration: 0,
      renewable: false,
      wrap_info: null,
      warnings: null,
      auth: null,
      mount_type: 'ldap',
    })
  })

  test('D5, D6: lists are bare arrays for X-Service-Token alone, envelopes for all others', async () => {
    const { spec: bare, ...others } = dialects()
    for (const [method, list] of [
      ['LIST', 'ldap/static-role/dialects'],
      ['GET', 'ldap/static-role/dialects?list=true'],
      ['GET', 'ldap/static-role/dialects/?list=t'],
    ] as const) {
      expect((await keyturn.call(method, list, undefined, bare)).body, list).toEqual(['app'])
      for (const options of Object.values(others))
        expect((await keyturn.call(method, list, undefined, options)).body.data, list).toEqual({ keys: ['app'] })
    }
    expect((await keyturn.call('GET', 'ldap/static-role', undefined, bare)).body).toContain('dialects/')
    expect((await keyturn.call('GET', 'ldap/static-role', undefined, others.peer)).body.data.keys).toContain(
      'dialects/',
    )
    // These are the same for everybody.
    await done('POST', 'auth/ldap/groups/everybody', { policies: 'a' })
    for (const options of Object.values(dialects()))
      expect((await keyturn.call('LIST', 'auth/ldap/groups', undefined, options)).body.data.keys).toEqual(['everybody'])
    await done('DELETE', 'auth/ldap/groups/everybody')
  })

  test('D2, D7: mounts, and a bind password that is shown empty', async () => {
    await done('POST', 'sys/mounts/other', { type: 'openldap' })
    const { body } = await keyturn.call('GET', 'sys/mounts')
    expect(body['other/'].type).toBe('ldap')
    expect(body.data['other/']).toEqual(body['other/'])
    await done('DELETE', 'sys/mounts/other')
    const name = await login()
    const { data } = (await keyturn.call('GET', `auth/${name}/config`)).body
    expect(data).toMatchObject({ bindpass: '', binddn: MANAGER.binddn, use_token_groups: true, token_type: 'default' })
    expect(data).not.toHaveProperty('client_tls_key')
    // What a later version uses is kept for those who send it and read it back.
    const later = { rotation_schema: 'ad', password_policy: 'long' }
    expect(data).toMatchObject({ rotation_schema: 'openldap', password_policy: '' })
    await done('POST', `auth/${name}/config`, later)
    expect((await keyturn.call('GET', `auth/${name}/config`)).body.data).toMatchObject(later)
    const config = (await keyturn.call('GET', 'ldap/config')).body.data
    expect(config).not.toHaveProperty('bindpass')
    expect(config.length).toBe(64)
  })
})

describe('inputs', () => {
  test.each([
    [3600, 3600],
    ['3600', 3600],
    ['1h', 3600],
    ['60m', 3600],
    ['1d', 86_400],
    ['1d12h', 129_600],
    ['90.9s', 90],
    [7.9, 7],
  ])('a duration %j', async (given, seconds) => {
    await done('POST', 'ldap/static-role/inputs/duration', { ...inputs, rotation_period: given })
    expect((await keyturn.call('GET', 'ldap/static-role/inputs/duration')).body.data.rotation_period).toBe(seconds)
  })
  const inputs = { username: 'bulk-20' }
  test.each(['', 0, -1, '-1s', 'abc', '1 h', null, '4.9s'])('a duration %j is refused', async (given) => {
    const body = { username: 'bulk-19', rotation_period: given }
    const { status, text } = await keyturn.call('POST', 'ldap/static-role/inputs/refused', body)
    expect(status).toBe(400)
    expect(text).toContain('rotation_period')
    expect((await keyturn.call('GET', 'ldap/static-role/inputs/refused')).status).toBe(404)
  })
  test('an empty duration is 0 where 0 may be', async () => {
    const name = await login({ token_ttl: '2h' })
    await done('POST', `auth/${name}/config`, { token_ttl: '' })
    expect((await keyturn.call('GET', `auth/${name}/config`)).body.data.token_ttl).toBe(0)
  })

  test.each([
    ['a, B ,a', ['a', 'b']],
    [
      [' b', 'a'],
      ['a', 'b'],
    ],
    [['a,b'], ['a,b']],
    ['', []],
    [[], []],
    [null, []],
    [7, undefined],
  ])('a list %j', async (given, want) => {
    const { status } = await keyturn.call('POST', 'auth/ldap/groups/lists', { policies: given })
    if (want === undefined) expect(status).toBe(400)
    else {
      expect(status).toBe(204)
      expect((await keyturn.call('GET', 'auth/ldap/groups/lists')).body.data.policies).toEqual(want)
    }
    await keyturn.call('DELETE', 'auth/ldap/groups/lists')
  })

  test('booleans and numbers in their other spellings; null is not supplied', async () => {
    const name = await login()
    for (const [given, want] of [
      ['true', true],
      ['0', false],
      [1, true],
      ['f', false],
    ] as const) {
      await done('POST', `auth/${name}/config`, { case_sensitive_names: given, token_num_uses: '3', userdn: null })
      const { data } = (await keyturn.call('GET', `auth/${name}/config`)).body
      expect(data).toMatchObject({ case_sensitive_names: want, token_num_uses: 3, userdn: `ou=people,${SUFFIX}` })
    }
  })

  test('a form counts like JSON; the path wins over the body', async () => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    await done('POST', 'auth/ldap/groups/formed', 'policies=a%2Cb&name=other', { headers })
    expect((await keyturn.call('GET', 'auth/ldap/groups/formed')).body.data.policies).toEqual(['a', 'b'])
    expect((await keyturn.call('GET', 'auth/ldap/groups/other')).status).toBe(404)
    await done('DELETE', 'auth/ldap/groups/FORMED')
    expect((await keyturn.call('GET', 'auth/ldap/groups/formed')).status).toBe(404)
  })
})

describe('names', () => {
  test('are one for all spellings and a hierarchy at every depth', async () => {
    await done('POST', 'sys/mounts/tree', { type: 'ldap' })
    await done('POST', 'tree/config', { url: slapd.url, userattr: 'uid', userdn: `ou=bulk,${SUFFIX}`, ...MANAGER })
    for (const [i, name] of ['A', 'a/b', 'A/B/C', 'd'].entries())
      await done('POST', `tree/static-role/${name}`, {
        username: `bulk-${i + 21}`,
        rotation_period: '24h',
        skip_import_rotation: true,
      })
    expect((await keyturn.call('GET', 'tree/static-role/A/b/C')).body.data.username).toBe('bulk-23')
    const keys = async (at: string) => (await keyturn.call('LIST', at)).body.data?.keys
    expect(await keys('tree/static-role')).toEqual(['a', 'a/', 'd'])
    expect(await keys('tree/static-role/A')).toEqual(['b', 'b/'])
    expect(await keys('tree/static-role/a/b/')).toEqual(['c'])
    expect(await keys('tree/static-role/a/b/c')).toBeUndefined()
    expect(await keys('tree/static-role/d')).toBeUndefined()
    // An import without rotation: no password until the first period ends.
    const { data } = (await keyturn.call('GET', 'tree/static-cred/d')).body
    expect(data).toMatchObject({ password: '', last_password: '', last_vault_rotation: '0001-01-01T00:00:00Z' })
    expect(data.ttl).toBeGreaterThan(86_000)
    expect(await binds(slapd, `uid=bulk-24,ou=bulk,${SUFFIX}`, 'bulk-24-secret')).toBe(true)
    await done('DELETE', 'sys/mounts/tree')
  })
})

test('ten rotations asked for at once are one rotation and ten times 204', async () => {
  await done('POST', 'ldap/static-role/ten', account())
  const before = (await keyturn.call('GET', 'ldap/static-cred/ten')).body.data
  // The directory is held until the audit log says that all ten have come.
  const held = Promise.withResolvers<void>()
  hook.handler = async (operation): Promise<HookAnswer> => {
    if (operation.type === 'MODIFY') await held.promise
    return 'CONTINUE'
  }
  const asked = Promise.all(Array.from({ length: 10 }, () => keyturn.call('POST', 'ldap/rotate-role/ten')))
  try {
    const come = () =>
      readFileSync(path.join(keyturn.dataDir, 'audit.log'), 'utf8').split('"path":"ldap/rotate-role/ten"').length - 1
    await expect.poll(come, { timeout: 20_000 }).toBe(10)
    await keyturn.call('GET', 'sys/mounts')
  } finally {
    held.resolve()
    hook.handler = () => 'CONTINUE'
  }
  const answers = await asked
  expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(204))
  const after = (await keyturn.call('GET', 'ldap/static-cred/ten')).body.data
  expect(after).toMatchObject({ credential_version: before.credential_version + 1, last_password: before.password })
})

test('a role made while the directory is down is not made, and its account can be used afterwards', async () => {
  const role = account()
  await slapd.crash()
  try {
    const refused = await keyturn.call('POST', 'ldap/static-role/down', role)
    expect(refused.status, refused.text).toBe(503)
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(5)
    expect((await keyturn.call('GET', 'ldap/static-role/down')).status).toBe(404)
  } finally {
    await slapd.again()
  }
  await expect
    .poll(async () => (await keyturn.call('POST', 'ldap/static-role/another', role)).status, { timeout: 20_000 })
    .toBe(204)
})

describe('logins', () => {
  test('an empty password where null binds are allowed, with a warning to whoever allows them', async () => {
    const name = await login()
    const warned = await keyturn.call('POST', `auth/${name}/config`, { deny_null_bind: false })
    expect([warned.status, warned.body.warnings]).toEqual([200, [expect.stringContaining('deny_null_bind')]])
    expect((await enter(name, '')).status).toBe(200)
    await done('POST', `auth/${name}/config`, { deny_null_bind: true })
    expect((await enter(name, '')).status).toBe(400)
  })

  test('without an identity of the service a renewal binds again: a changed password ends it', async () => {
    const name = await login({ binddn: '', bindpass: '', token_ttl: '1h' })
    await done('POST', 'ldap/static-role/own', { username: 'bulk-18', rotation_period: '24h' })
    await done('POST', `auth/${name}/config`, { userdn: `ou=bulk,${SUFFIX}` })
    const { password } = (await keyturn.call('GET', 'ldap/static-cred/own')).body.data
    const { client_token: token } = (await enter(name, password, 'bulk-18')).body.auth
    expect((await keyturn.call('POST', 'auth/token/renew-self', {}, { token })).status).toBe(200)
    await done('POST', 'ldap/rotate-role/own')
    const refused = await keyturn.call('POST', 'auth/token/renew-self', {}, { token })
    expect(refused.status, refused.text).toBe(400)
    expect((await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).status).toBe(200)
  })

  test('a renewal while the directory is down is 503 and takes nothing from the token', async () => {
    const name = await login({ token_ttl: '1h' })
    const { client_token: token } = (await enter(name)).body.auth
    const life = async () =>
      (await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).body.data.expire_time
    const before = await life()
    await slapd.crash()
    try {
      const answer = await keyturn.call('POST', 'auth/token/renew-self', {}, { token })
      expect(answer.status, answer.text).toBe(503)
    } finally {
      await slapd.again()
    }
    expect(await life()).toBe(before)
  })

  test('token settings', async () => {
    const name = await login({
      token_policies: 'One,two,one',
      token_ttl: '30m',
      token_explicit_max_ttl: '40m',
      token_no_default_policy: true,
      token_num_uses: 2,
      token_bound_cidrs: '127.0.0.0/8,::1',
    })
    const { auth } = (await enter(name)).body
    expect(auth).toMatchObject({ policies: ['one', 'two'], lease_duration: 1800, num_uses: 2, token_type: 'service' })
    const self = () => keyturn.call('GET', 'sys/capabilities-self', undefined, { token: auth.client_token })
    const used = [await self(), await self(), await self()]
    expect(used.map(({ status, text }) => [status, text.includes('permission denied')])).toEqual([
      [403, true],
      [403, true],
      [403, true],
    ])
    const lookup = await keyturn.call('POST', 'auth/token/lookup', { token: auth.client_token })
    expect([lookup.status, lookup.text]).toEqual([403, expect.stringContaining('bad token')])

    await done('POST', `auth/${name}/config`, { token_num_uses: 0, token_no_default_policy: false })
    const { client_token: token } = (await enter(name)).body.auth
    const renewed = await keyturn.call('POST', 'auth/token/renew-self', { increment: '2h' }, { token })
    expect(renewed.body.auth.lease_duration).toBeLessThanOrEqual(2400)
    expect(renewed.body.warnings.join()).toContain('capped')
    await done('POST', `auth/${name}/config`, { token_bound_cidrs: '192.0.2.0/24' })
    expect((await enter(name)).status).toBe(403)
    // The token is bound to the networks of its login.
    expect((await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).status).toBe(200)
    await done('POST', `auth/${name}/config`, { token_bound_cidrs: '', token_period: '10m', token_explicit_max_ttl: 0 })
    const periodic = (await enter(name)).body.auth
    expect(periodic.lease_duration).toBe(600)
  })
})
