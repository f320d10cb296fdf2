import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { startHook } from '../support/slapd-hook.ts'

// Logging in with a directory password, through the API, against a real directory (CONTRACT 7).

let slapd: Slapd
let keyturn: Keyturn
const people = `ou=people,${SUFFIX}`
const groups = `ou=groups,${SUFFIX}`
const reader = { binddn: `cn=svc-reader,ou=services,${SUFFIX}`, bindpass: 'svc-reader-secret' }

beforeAll(async () => {
  slapd = await startSlapd()
  keyturn = await startKeyturn()
  for (const name of ['staff', 'admins', 'alice-own', 'local']) {
    const policy = `path "ldap/static-cred/${name}/*" { capabilities = ["read"] }`
    expect((await keyturn.call('POST', `sys/policies/acl/${name}`, { policy })).status).toBe(204)
  }
})
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
})

const base = () => ({ url: slapd.url, userdn: people, userattr: 'uid', ...reader })
let mounts = 0

/** A mount of its own for a test, configured. */
async function mounted(config: Record<string, unknown> = {}): Promise<string> {
  const path = `people-${++mounts}`
  expect((await keyturn.call('POST', `sys/auth/${path}`, { type: 'ldap' })).status).toBe(204)
  const written = await keyturn.call('POST', `auth/${path}/config`, { ...base(), ...config })
  expect([200, 204], written.text).toContain(written.status)
  return path
}
const login = (path: string, username: string, password: string) =>
  keyturn.call('POST', `auth/${path}/login/${encodeURIComponent(username)}`, { password }, { token: null })

describe('finding the user', () => {
  test('by a search of the service', async () => {
    const path = await mounted()
    const answer = await login(path, 'alice', 'alice-secret')
    expect(answer.status, answer.text).toBe(200)
    expect(answer.body.data).toBeNull()
    expect(answer.body.auth).toMatchObject({
      policies: ['default'],
      metadata: { username: 'alice' },
      renewable: true,
      orphan: true,
      token_type: 'service',
      lease_duration: 2_764_800,
    })
    const self = await keyturn.call('GET', 'auth/token/lookup-self', undefined, {
      token: answer.body.auth.client_token,
    })
    expect(self.body.data).toMatchObject({ display_name: `${path}-alice`, path: `auth/${path}/login/alice` })
  })

  test('by the template of userattr and userdn, bound as the user herself', async () => {
    const path = await mounted({ binddn: '', bindpass: '', groupdn: groups })
    expect((await login(path, 'alice', 'alice-secret')).status).toBe(200)
    expect((await login(path, 'alice', 'wrong')).status).toBe(400)
  })

  test('by anonymous discovery', async () => {
    const path = await mounted({ binddn: '', bindpass: '', discoverdn: true })
    expect((await login(path, 'alice', 'alice-secret')).status).toBe(200)
  })

  test.each([
    ['an unknown user', 'nobody-here', 'x'],
    ['a wrong password', 'alice', 'x'],
    ['a name found twice', 'twin', 'twin1-secret'],
    ['a filter as a name', '*', 'x'],
    ['a filter that would match', 'alice)(uid=*', 'alice-secret'],
  ])('%s gets the same answer', async (_, username, password) => {
    const path = await mounted(username === 'twin' ? { userattr: 'cn' } : {})
    const answer = await login(path, username, password)
    expect(answer.status).toBe(400)
    expect(answer.body.errors).toEqual(['ldap operation failed: failed to bind as user'])
  })

  test.each([
    ['uid', 'we*(ird)\\', 'weird-secret'],
    ['uid', 'pat', 'pat-secret'],
    ['cn', 'Smith, Pat "PJ" + <ops> #1; a=b\\', 'pat-secret'],
    ['uid', 'multi', 'multi-secret'],
  ])('%s %s', async (userattr, username, password) => {
    const path = await mounted({ userattr, groupdn: groups })
    const answer = await login(path, username, password)
    expect(answer.text).toContain('client_token')
  })

  test('a name with special characters by template', async () => {
    const path = await mounted({ userattr: 'cn', binddn: '', bindpass: '' })
    const answer = await login(path, 'Smith, Pat "PJ" + <ops> #1; a=b\\', 'pat-secret')
    expect(answer.text).toContain('client_token')
  })
})

test('a refused password of the service is presented once, whoever logs in; then the directory is left alone', async () => {
  const work = await mkdtemp(path.join(tmpdir(), 'kt-hook-'))
  await using hook = await startHook(path.join(work, 'hook'), () => 'CONTINUE')
  const watched = await startSlapd({ HOOK: path.join(work, 'hook') })
  try {
    const mount = await mounted({ url: watched.url, bindpass: 'wrong' })
    const answers = await Promise.all(Array.from({ length: 10 }, () => login(mount, 'alice', 'alice-secret')))
    for (const answer of answers) expect(answer.status).toBe(503)
    expect((await login(mount, 'bob', 'bob-secret')).status).toBe(503)
    expect(hook.seen.filter(({ type, dn }) => type === 'BIND' && dn.startsWith('cn=svc-reader'))).toHaveLength(1)
    // A new configuration is a new chance.
    await keyturn.call('POST', `auth/${mount}/config`, { bindpass: 'svc-reader-secret' })
    expect((await login(mount, 'alice', 'alice-secret')).status).toBe(200)
  } finally {
    await watched.stop()
    await rm(work, { recursive: true })
  }
})

test('an empty password is refused unless null binds are allowed', async () => {
  const path = await mounted()
  const answer = await login(path, 'alice', '')
  expect(answer.status).toBe(400)
  expect(answer.body.errors[0]).toContain('zero length')
})

describe('groups', () => {
  test('the group filter is used with use_token_groups left at its default', async () => {
    const path = await mounted({ groupdn: groups })
    await keyturn.call('POST', `auth/${path}/groups/Engineers`, { policies: 'staff' })
    const answer = await login(path, 'alice', 'alice-secret')
    expect(answer.body.auth.policies).toEqual(['default', 'staff'])
  })

  test('policies of user, groups and local groups add up; names compare without case', async () => {
    const path = await mounted({ groupdn: groups, token_policies: ['base'] })
    await keyturn.call('POST', `auth/${path}/groups/ENGINEERS`, { policies: 'staff' })
    await keyturn.call('POST', `auth/${path}/groups/locals`, { policies: ['local'] })
    await keyturn.call('POST', `auth/${path}/users/Alice`, { policies: 'alice-own', groups: 'Locals' })
    const answer = await login(path, 'ALICE', 'alice-secret')
    expect(answer.body.auth.token_policies).toEqual(['alice-own', 'base', 'default', 'local', 'staff'])
    const read = await keyturn.call('GET', `auth/${path}/users/alice`)
    expect(read.body.data).toEqual({ policies: ['alice-own'], groups: 'locals' })
  })

  test('a login without groups succeeds and warns', async () => {
    const path = await mounted({ groupdn: `ou=nowhere,${SUFFIX}` })
    const answer = await login(path, 'alice', 'alice-secret')
    expect(answer.status).toBe(200)
    expect(answer.body.warnings.join()).toContain('ou=nowhere')
  })

  test('the group search may be anonymous', async () => {
    const path = await mounted({ groupdn: groups, anonymous_group_search: true })
    await keyturn.call('POST', `auth/${path}/groups/engineers`, { policies: 'staff' })
    expect((await login(path, 'alice', 'alice-secret')).body.auth.policies).toEqual(['default', 'staff'])
  })
})

test('five refused logins lock the name, however it is written, and the directory is not asked again', async () => {
  const path = await mounted()
  for (const name of ['bob', 'Bob', ' bob', 'BOB ', 'bob']) expect((await login(path, name, 'wrong')).status).toBe(400)
  const locked = await login(path, 'bob', 'bob-secret')
  expect(locked.status).toBe(403)
  expect(locked.text).toContain('permission denied')
  expect((await login(path, 'alice', 'alice-secret')).status).toBe(200)
})

test('a token is renewed by looking its user up again, and refused when the policies changed', async () => {
  const path = await mounted({ groupdn: groups, token_ttl: '1h' })
  await keyturn.call('POST', `auth/${path}/groups/engineers`, { policies: 'staff' })
  const { client_token: token } = (await login(path, 'alice', 'alice-secret')).body.auth
  expect((await keyturn.call('POST', 'auth/token/renew-self', {}, { token })).status).toBe(200)
  await keyturn.call('POST', `auth/${path}/groups/engineers`, { policies: 'admins' })
  const refused = await keyturn.call('POST', 'auth/token/renew-self', {}, { token })
  expect(refused.status).toBe(400)
  expect(refused.text).toContain('policies have changed')
})

test('an unreachable directory is 503 with a small Retry-After and locks nobody', async () => {
  const path = await mounted({ url: 'ldap://127.0.0.1:1' })
  for (let i = 0; i < 6; i++) {
    const answer = await login(path, 'alice', 'alice-secret')
    expect(answer.status).toBe(503)
    expect(Number(answer.headers['retry-after'])).toBeLessThanOrEqual(5)
  }
})

test('a removed mount takes its tokens with it', async () => {
  const path = await mounted()
  const { client_token: token } = (await login(path, 'alice', 'alice-secret')).body.auth
  expect((await keyturn.call('DELETE', `sys/auth/${path}`)).status).toBe(204)
  expect((await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).status).toBe(403)
})
