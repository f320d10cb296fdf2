import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { GROUPS, loginLab } from '../support/ldap-login.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { startHook } from '../support/slapd-hook.ts'

// Logging in with a directory password, through the API, against a real directory.

let slapd: Slapd
let keyturn: Keyturn
const groups = GROUPS
const { mounted, login } = loginLab(() => ({ keyturn, slapd }))

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
    for (const answer of answers) {
      expect(answer.status).toBe(503)
      expect(answer.body.errors).toEqual(['the directory cannot serve logins now'])
      expect(answer.headers['x-keyturn-reason']).toBeUndefined()
    }
    // Why stands in the log.
    expect(keyturn.output).toMatch(/invalid credentials \(result code 49\)/)
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

test('what the directory refused is told to nobody but the log', async () => {
  const path = await mounted({ userdn: `ou=nowhere,${SUFFIX}` })
  const answer = await login(path, 'alice', 'alice-secret')
  expect([answer.status, answer.body.errors]).toEqual([
    400,
    ['ldap operation failed: the directory did not let this user be looked up'],
  ])
  expect(keyturn.output).toContain('no such object (result code 32)')
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

describe('five refused logins lock the name, however it is written, and the directory is not asked again', () => {
  test.each([
    ['found by a search', {}],
    ['by template', { binddn: '', bindpass: '' }],
  ])('%s', async (_, config) => {
    const path = await mounted(config)
    for (const name of ['bob', 'Bob', ' bob', 'BOB ', 'ｂob'])
      expect((await login(path, name, 'wrong')).status, name).toBe(400)
    for (const name of ['bob', 'bo\u24d1', '\u{1d41b}ob', 'b\u00bab', 'B\uff2fB']) {
      const locked = await login(path, name, 'bob-secret')
      expect(locked.status, name).toBe(403)
      expect(locked.text).toContain('permission denied')
    }
    expect((await login(path, 'alice', 'alice-secret')).status).toBe(200)
  })

  test('with spaces inside', async () => {
    const path = await mounted({ userattr: 'cn' })
    for (let i = 1; i <= 5; i++) expect((await login(path, `Bob${' '.repeat(i)}Example`, 'wrong')).status).toBe(400)
    expect((await login(path, 'Bob Example', 'bob-secret')).status).toBe(403)
    expect((await login(path, 'Bob      Example', 'bob-secret')).status).toBe(403)
  })

  test('under every name the directory finds the entry by', async () => {
    const many = { userfilter: '(|({{.UserAttr}}={{.Username}})(mail={{.Username}}))' }
    const path = await mounted(many)
    for (const name of ['bob', 'bob@example.test', 'bob', 'bob@example.test', 'bob'])
      expect((await login(path, name, 'wrong')).status).toBe(400)
    expect((await login(path, 'bob@example.test', 'bob-secret')).status).toBe(403)
    expect((await login(path, 'bob', 'bob-secret')).status).toBe(403)
    // One who knows the password clears both counters.
    for (const name of ['alice', 'alice@example.test']) {
      for (let i = 0; i < 4; i++) expect((await login(path, name, 'wrong')).status).toBe(400)
      expect((await login(path, name, 'alice-secret')).status).toBe(200)
    }
  })
})

describe('locked names', () => {
  const lockedOf = async (path: string) => {
    const { body } = await keyturn.call('GET', 'sys/locked-users')
    const { accessor } = (await keyturn.call('GET', `sys/auth/${path}`)).body.data
    const [{ mount_accessors: mounts }] = body.data.by_namespace
    const mine = mounts.find((mount: { mount_accessor: string }) => mount.mount_accessor === accessor)
    return { accessor, names: mine?.alias_identifiers, counts: mine?.counts }
  }
  const lock = async (path: string, name: string) => {
    for (let i = 0; i < 5; i++) await login(path, name, 'wrong')
    expect((await login(path, name, 'wrong')).status).toBe(403)
  }

  test('are listed by mount, and unlocked with what was found under them', async () => {
    const path = await mounted()
    await lock(path, 'bob')
    await lock(path, 'no/body')
    const { accessor, names, counts } = await lockedOf(path)
    expect([names, counts]).toEqual([['bob', 'no/body'], 2])
    expect((await keyturn.call('POST', `sys/locked-users/${accessor}/unlock/BOB`)).status).toBe(204)
    expect((await lockedOf(path)).names).toEqual(['no/body'])
    expect((await login(path, 'bob', 'bob-secret')).status).toBe(200)
    expect((await keyturn.call('POST', `sys/locked-users/${accessor}/unlock/no/body`)).status).toBe(204)
    expect((await lockedOf(path)).names).toBeUndefined()
    expect((await login(path, 'no/body', 'x')).status).toBe(400)
  })

  test('of an entry that was found by several are unlocked by any of them', async () => {
    const path = await mounted({ userfilter: '(|({{.UserAttr}}={{.Username}})(mail={{.Username}}))' })
    for (const name of ['bob', 'bob@example.test', 'bob', 'bob@example.test', 'bob']) await login(path, name, 'wrong')
    const { accessor, names } = await lockedOf(path)
    expect(names).toEqual(['bob'])
    expect((await keyturn.call('POST', `sys/locked-users/${accessor}/unlock/bob@example.test`)).status).toBe(204)
    expect((await lockedOf(path)).names).toBeUndefined()
    expect((await login(path, 'bob', 'bob-secret')).status).toBe(200)
  })

  test('of a mount that is not there cannot be unlocked', async () => {
    const answer = await keyturn.call('POST', 'sys/locked-users/auth_ldap_0/unlock/bob')
    expect([answer.status, answer.body.errors]).toEqual([400, ['no auth mount has the accessor "auth_ldap_0"']])
  })
})

describe('a mapping of a user holds however she spells her name', () => {
  test.each([
    ['found by a search', {}],
    ['by template', { binddn: '', bindpass: '' }],
    ['where names are told apart by case', { case_sensitive_names: true }],
  ])('%s', async (_, config) => {
    const path = await mounted(config)
    await keyturn.call('POST', `auth/${path}/users/alice`, { policies: 'alice-own', groups: 'locals' })
    await keyturn.call('POST', `auth/${path}/groups/locals`, { policies: 'local' })
    for (const name of ['alice', 'ALICE', '\uff41lice', 'a\u24dbice'])
      expect((await login(path, name, 'alice-secret')).body.auth?.policies, name).toEqual([
        'alice-own',
        'default',
        'local',
      ])
    expect((await login(path, 'bob', 'bob-secret')).body.auth.policies).toEqual(['default'])
  })

  test('and is written under any spelling too', async () => {
    const path = await mounted()
    await keyturn.call('POST', `auth/${path}/users/${encodeURIComponent(' \uff21lice')}`, { policies: 'alice-own' })
    expect((await keyturn.call('LIST', `auth/${path}/users`)).body.data.keys).toEqual(['alice'])
    expect((await login(path, 'alice', 'alice-secret')).body.auth.policies).toEqual(['alice-own', 'default'])
  })

  test('one human is one entity, also by the name as it was typed', async () => {
    const path = await mounted({ username_as_alias: true })
    const entities = new Set<string>()
    for (const name of ['alice', 'ALICE', '\uff41lice', ' alice'])
      entities.add((await login(path, name, 'alice-secret')).body.auth.entity_id)
    expect(entities.size).toBe(1)
    const other = await mounted({ userfilter: '(|({{.UserAttr}}={{.Username}})(mail={{.Username}}))' })
    const byName = (await login(other, 'alice', 'alice-secret')).body.auth
    const byMail = (await login(other, 'alice@example.test', 'alice-secret')).body.auth
    expect(byMail.entity_id).toBe(byName.entity_id)
    expect(byMail.metadata).toEqual({ username: 'alice@example.test' })
  })

  test('where names are told apart by case, mappings of two spellings are two', async () => {
    const path = await mounted({ case_sensitive_names: true })
    await keyturn.call('POST', `auth/${path}/users/Dave`, { policies: 'staff' })
    await keyturn.call('POST', `auth/${path}/users/dave`, { policies: 'local' })
    expect((await keyturn.call('LIST', `auth/${path}/users`)).body.data.keys).toEqual(['Dave', 'dave'])
    expect((await login(path, 'Dave', 'Dave-secret')).body.auth.policies).toEqual(['default', 'staff'])
    // Her entry says Dave, whatever was typed.
    expect((await login(path, 'dave', 'Dave-secret')).body.auth.policies).toEqual(['default', 'local', 'staff'])
  })
})

test('an unreachable directory is 503 with a small Retry-After and locks nobody', async () => {
  const path = await mounted({ url: 'ldap://127.0.0.1:1' })
  for (let i = 0; i < 6; i++) {
    const answer = await login(path, 'alice', 'alice-secret')
    expect([answer.status, answer.body.errors]).toEqual([503, ['the directory cannot serve logins now']])
    expect(Number(answer.headers['retry-after'])).toBeLessThanOrEqual(5)
  }
})

test('a removed mount takes its tokens with it', async () => {
  const path = await mounted()
  const { client_token: token } = (await login(path, 'alice', 'alice-secret')).body.auth
  expect((await keyturn.call('DELETE', `sys/auth/${path}`)).status).toBe(204)
  expect((await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })).status).toBe(403)
})
