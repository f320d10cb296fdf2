import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { accountDue, NEW_ACCOUNT } from '../../src/engine/account/account.ts'
import { accountKind, type StaticRoleRecord, staticRoleKind } from '../../src/engine/secrets/ldap/records.ts'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import { setRestoreMark } from '../../src/engine/storage/restore-mark.ts'
import { openSqliteDriver } from '../../src/engine/storage/sqlite.ts'
import { put } from '../../src/engine/storage/store.ts'
import { tenancyBody, writeTenancy } from '../../src/engine/tenancy/table.ts'
import { type LdapEngine, MOUNT, startLdapEngine, tenant, text } from '../support/ldap-engine.ts'
import { LDAP_REFUSALS } from '../support/refusals-ldap.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { TestClock } from '../support/test-clock.ts'

const exec = promisify(execFile)
const MANAGER = `cn=svc-manager,ou=services,${SUFFIX}`
const dnOf = (uid: string, ou = 'services') => `uid=${uid},ou=${ou},${SUFFIX}`

let slapd: Slapd
let scratch: string
let engine: LdapEngine
let stores = 0

beforeAll(async () => {
  slapd = await startSlapd()
  scratch = await mkdtemp(join(tmpdir(), 'kt-ldap-'))
})
afterAll(async () => {
  await slapd?.stop()
  await rm(scratch, { recursive: true, force: true })
})

const config = () => ({
  binddn: MANAGER,
  bindpass: 'svc-manager-secret',
  url: slapd.url,
  userdn: SUFFIX,
  userattr: 'uid',
  request_timeout: 5,
  connection_timeout: 5,
})

async function ldif(lines: string[]): Promise<void> {
  const admin = ['-x', '-H', slapd.url, '-D', `cn=admin,${SUFFIX}`, '-w', 'admin-secret']
  const child = exec('ldapmodify', admin)
  child.child.stdin?.end(`${lines.join('\n')}\n`)
  await child
}

/** An account of its own for a test, below an organisational unit. */
async function account(uid: string, ou = 'services'): Promise<string> {
  const dn = dnOf(uid, ou)
  const about = [`objectClass: inetOrgPerson`, `cn: ${uid}`, `sn: ${uid}`, `userPassword: ${uid}-secret`]
  await ldif([`dn: ${dn}`, 'changetype: add', ...about])
  return uid
}

async function binds(dn: string, password: string): Promise<boolean> {
  try {
    await exec('ldapwhoami', ['-x', '-H', slapd.url, '-D', dn, '-w', password])
    return true
  } catch {
    return false
  }
}

const until = async <T>(look: () => Promise<T | undefined | false>): Promise<T> => {
  const end = performance.now() + 15_000
  for (;;) {
    const found = await look()
    if (found) return found
    if (performance.now() > end) throw new Error('it did not happen in 15 s')
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

const keys = async (path: string) => {
  const { reply } = await engine.request('list', path)
  return reply && 'keys' in reply ? reply.keys : undefined
}

const refusedAs = (kind: string, fragment: string | RegExp) =>
  expect.objectContaining({
    kind,
    message: expect.stringMatching(typeof fragment === 'string' ? new RegExp(RegExp.escape(fragment)) : fragment),
  })

describe.each(['memory', 'SQLite'])('over %s', (kind) => {
  beforeEach(async () => {
    const driver = kind === 'memory' ? createMemoryDriver() : openSqliteDriver(join(scratch, `${stores++}.db`))
    engine = await startLdapEngine({ driver })
  })
  afterEach(() => engine[Symbol.asyncDispose]())
  const unique = (name: string) => `${name}-${kind.toLowerCase()}`

  test('a role is created with a password that binds, and the one before does not', async () => {
    await engine.write('config', config())
    const uid = await account(unique('create'))
    const before = Date.now()
    expect((await engine.write('static-role/Team/App', { username: uid, rotation_period: '1h' })).reply).toBeUndefined()
    const cred = await engine.read('static-cred/team/APP')
    expect(await binds(dnOf(uid), text(cred['password']))).toBe(true)
    expect(await binds(dnOf(uid), `${uid}-secret`)).toBe(false)
    expect(text(cred['password'])).toMatch(/^[A-Za-z0-9]{64}$/)
    expect(cred).toMatchObject({
      dn: dnOf(uid),
      username: uid,
      last_password: '',
      rotation_period: 3600,
      credential_version: 1,
    })
    expect(cred['last_vault_rotation']).toEqual(cred['last_service_rotation'])
    expect(Date.parse(text(cred['last_vault_rotation']))).toBeGreaterThanOrEqual(before)
    expect(Number(cred['ttl'])).toBeGreaterThan(3590)
    expect(Number(cred['ttl'])).toBeLessThanOrEqual(3600)
    const role = await engine.read('static-role/team/app')
    expect(role).toMatchObject({ username: uid, rotation_period: 3600, resolved_dn: dnOf(uid), credential_version: 1 })
    expect(role['last_service_rotation']).toEqual(cred['last_service_rotation'])
    const events = await engine.events()
    expect(events).toEqual(expect.arrayContaining(['config-write config', 'static-role-create static-role/team/app']))
  })

  test('a role is deleted with all that belongs to it, and its account may be managed again', async () => {
    await engine.write('config', config())
    const uid = await account(unique('delete'))
    await engine.write('static-role/one', { username: uid, rotation_period: 60 })
    await expect(engine.write('static-role/two', { username: uid, rotation_period: 60 })).rejects.toEqual(
      refusedAs('invalid', 'already managed'),
    )
    await engine.request('delete', 'static-role/one')
    await engine.request('delete', 'static-role/one')
    expect((await engine.request('read', 'static-role/one')).reply).toBeUndefined()
    await expect(engine.read('static-cred/one')).rejects.toEqual(refusedAs('invalid', 'unknown role'))
    expect(await keys('static-role')).toEqual([])
    await engine.write('static-role/two', { username: uid, rotation_period: 60 })
    expect(await engine.events()).toContain('static-role-delete static-role/one')
  })

  test('of ten creations of the same account at once one wins', async () => {
    await engine.write('config', config())
    const uid = await account(unique('race'))
    const tries = await Promise.allSettled(
      Array.from({ length: 10 }, (_, i) =>
        engine.write(`static-role/race-${i}`, {
          username: i % 2 ? uid : uid.toUpperCase(),
          ...(i % 3 === 0 && { dn: dnOf(uid) }),
          rotation_period: 60,
        }),
      ),
    )
    expect(tries.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    const [name] = (await keys('static-role')) ?? []
    expect(await binds(dnOf(uid), text((await engine.read(`static-cred/${name}`))['password']))).toBe(true)
  })

  test('ten rotations asked for at once are one', async () => {
    await engine.write('config', config())
    const uid = await account(unique('manual'))
    await engine.write('static-role/app', { username: uid, rotation_period: '1d' })
    const first = await engine.read('static-cred/app')
    await Promise.all(Array.from({ length: 10 }, () => engine.write('rotate-role/APP')))
    const second = await engine.read('static-cred/app')
    expect(second).toMatchObject({ credential_version: 2 })
    expect(text(second['last_password'])).toBe(text(first['password']))
    expect(await binds(dnOf(uid), text(second['password']))).toBe(true)
    expect(await binds(dnOf(uid), text(first['password']))).toBe(false)
  })

  test('names are a hierarchy, and a name may be both an object and a folder', async () => {
    await engine.write('config', config())
    for (const name of ['a', 'a/b', 'a/b/c', 'd'])
      await engine.write(`static-role/${name}`, {
        username: `list-${name}`,
        rotation_period: 60,
        skip_import_rotation: true,
      })
    expect(await keys('static-role')).toEqual(['a', 'a/', 'd'])
    expect(await keys('static-role/')).toEqual(['a', 'a/', 'd'])
    expect(await keys('static-role/A')).toEqual(['b', 'b/'])
    expect(await keys('static-role/a/b/')).toEqual(['c'])
    expect(await keys('static-role/d')).toEqual([])
    const { reply } = await engine.request('read', 'static-role')
    expect(reply).toEqual({ shape: 'keys', keys: ['a', 'a/', 'd'] })
  })

  test('what is refused changes nothing', async () => {
    await engine.write('config', config())
    await engine.write('static-role/team/app', { username: 'static-1', rotation_period: '1h' })
    const state = async () =>
      JSON.stringify([
        await engine.read('config'),
        await engine.read('static-role/team/app'),
        await keys('static-role'),
      ])
    const before = await state()
    for (const { operation, path, fields = {}, kind, fragment } of LDAP_REFUSALS)
      await expect(
        engine.request(operation, path, { fields }),
        `${operation} ${path} ${JSON.stringify(fields)}`,
      ).rejects.toEqual(refusedAs(kind, fragment))
    expect(await state()).toBe(before)
  })
})

describe('configuration', () => {
  beforeEach(async () => {
    engine = await startLdapEngine({ driver: createMemoryDriver() })
  })
  afterEach(() => engine[Symbol.asyncDispose]())

  test('nothing is there before the first write, which needs binddn and bindpass', async () => {
    expect((await engine.request('read', 'config')).reply).toBeUndefined()
    await expect(engine.write('config', { bindpass: 'x' })).rejects.toEqual(refusedAs('invalid', 'binddn is required'))
    await expect(engine.write('config', { binddn: 'cn=x' })).rejects.toEqual(
      refusedAs('invalid', 'bindpass is required'),
    )
    await engine.request('delete', 'config')
    expect(await engine.events()).toEqual([])
  })

  test('defaults are those of the specification, and no secret is returned', async () => {
    await engine.write('config', { binddn: 'cn=x', bindpass: 'planted-secret', unknown_field: 1 })
    const read = await engine.read('config')
    expect(read).toMatchObject({
      binddn: 'cn=x',
      url: 'ldap://127.0.0.1',
      schema: 'openldap',
      userattr: 'cn',
      length: 64,
      starttls: false,
      insecure_tls: false,
      certificate: '',
      case_sensitive_names: false,
      tls_min_version: 'tls12',
      tls_max_version: 'tls12',
      request_timeout: 90,
      connection_timeout: 30,
      credential_type: 'password',
      skip_static_role_import_rotation: false,
      rotation_period: 0,
    })
    expect(JSON.stringify(read)).not.toContain('planted-secret')
    for (const name of ['bindpass', 'client_tls_key', 'password_policy', 'owner']) expect(read).not.toHaveProperty(name)
  })

  test('a write keeps what it does not name', async () => {
    const given = {
      binddn: 'cn=x',
      bindpass: 'p',
      url: 'LDAPS://DC1.example:636, ldaps://dc2.example',
      schema: 'ad',
      upndomain: 'corp.example',
      userdn: 'ou=Users,dc=corp',
      length: 20,
      request_timeout: '10s',
      tls_max_version: 'tls13',
      rotation_schedule: '0 3 * * 6',
      rotation_window: '2h',
      groupdn: 'ou=g',
      max_page_size: 100,
      ttl: '1h',
      skip_static_role_import_rotation: true,
    }
    await engine.write('config', given)
    const before = await engine.read('config')
    expect(before).toMatchObject({
      url: 'ldaps://dc1.example:636,ldaps://dc2.example',
      userattr: 'userPrincipalName',
      length: 20,
      request_timeout: 10,
      rotation_window: 7200,
      ttl: 3600,
    })
    await engine.write('config', { insecure_tls: 'true' })
    expect(await engine.read('config')).toEqual({ ...before, insecure_tls: true })
    // A later change of the schema does not change the attribute.
    await engine.write('config', { schema: 'openldap' })
    expect(await engine.read('config')).toMatchObject({ userattr: 'userPrincipalName' })
  })

  test('setting one of length and policy clears the other', async () => {
    await engine.write('config', { binddn: 'cn=x', bindpass: 'p', length: 20 })
    await engine.write('config', { password_policy: 'strong' })
    expect(await engine.read('config')).toMatchObject({ length: 0, password_policy: 'strong' })
    await engine.write('config', { length: 30 })
    const read = await engine.read('config')
    expect(read).toMatchObject({ length: 30 })
    expect(read).not.toHaveProperty('password_policy')
    await engine.write('config', { length: 30, password_policy: '' })
    await expect(engine.write('config', { length: 30, password_policy: 'x' })).rejects.toEqual(
      refusedAs('invalid', 'length and password_policy'),
    )
  })

  test('certificates: a root is accepted, one signed with SHA-1 and a key of another certificate are not', async () => {
    await engine.write('config', { ...config(), certificate: slapd.ca })
    await expect(engine.write('config', { certificate: await slapd.tls('sha1.crt') })).rejects.toEqual(
      refusedAs('invalid', 'SHA-1'),
    )
    const [cert, key, other] = [
      await slapd.tls('client.crt'),
      await slapd.tls('client.key'),
      await slapd.tls('server.key'),
    ]
    await expect(engine.write('config', { client_tls_cert: cert, client_tls_key: other })).rejects.toEqual(
      refusedAs('invalid', 'does not belong'),
    )
    await engine.write('config', { client_tls_cert: cert, client_tls_key: key })
    expect(await engine.read('config')).toMatchObject({ certificate: slapd.ca, client_tls_cert: cert })
  })

  test('a policy that does not exist refuses the rotation, and nothing is created', async () => {
    await engine.write('config', { ...config(), password_policy: 'absent' })
    await expect(engine.write('static-role/x', { username: 'static-2', rotation_period: 60 })).rejects.toEqual(
      refusedAs('invalid', 'password policy "absent" does not exist'),
    )
    expect(await keys('static-role')).toEqual([])
    expect(await binds(dnOf('static-2'), 'static-2-secret')).toBe(true)
  })

  test('without a configuration no role is made; roles stay when it goes', async () => {
    const role = { username: 'x', rotation_period: 60, skip_import_rotation: true }
    await expect(engine.write('static-role/x', role)).rejects.toEqual(refusedAs('invalid', 'not configured'))
    await engine.write('config', config())
    await engine.write('static-role/x', role)
    await engine.request('delete', 'config')
    expect((await engine.request('read', 'config')).reply).toBeUndefined()
    expect(await keys('static-role')).toEqual(['x'])
    await expect(engine.write('rotate-role/x')).rejects.toEqual(refusedAs('invalid', 'not configured'))
    expect(await engine.events()).toContain('config-delete config')
  })
})

describe('static roles', () => {
  beforeEach(async () => {
    engine = await startLdapEngine({ driver: createMemoryDriver() })
    await engine.write('config', config())
  })
  afterEach(() => engine[Symbol.asyncDispose]())

  test('an import without rotation leaves the password and asks no directory', async () => {
    await engine.write('config', { url: 'ldap://127.0.0.1:1' })
    await engine.write('static-role/x', { username: 'imported', rotation_period: '1h', skip_import_rotation: true })
    const cred = await engine.read('static-cred/x')
    expect(cred).toMatchObject({
      password: '',
      last_password: '',
      last_service_rotation: '0001-01-01T00:00:00Z',
      username: 'imported',
      dn: '',
    })
    expect(Number(cred['ttl'])).toBeGreaterThan(3590)
    const role = await engine.read('static-role/x')
    expect(role).not.toHaveProperty('last_vault_rotation')
  })

  test('an imported role is rotated when its period ends, and not by a restart', async () => {
    const uid = await account('imported')
    const clock = new TestClock(new Date())
    const file = join(scratch, 'restart.db')
    {
      await using before = await startLdapEngine({ driver: openSqliteDriver(file), clock })
      await before.write('config', config())
      await before.write('static-role/x', { username: uid, rotation_period: '1h', skip_import_rotation: true })
    }
    await using after = await startLdapEngine({ driver: openSqliteDriver(file), clock })
    const role = await after.read('static-role/x')
    after.start()
    await clock.advance(3_590_000)
    expect(await after.read('static-role/x')).toEqual(role)
    expect(await binds(dnOf(uid), `${uid}-secret`)).toBe(true)
    await clock.advance(11_000)
    await until(async () => (await after.read('static-role/x'))['credential_version'] === 1)
    expect(await binds(dnOf(uid), text((await after.read('static-cred/x'))['password']))).toBe(true)
  })

  /** What a server leaves behind that dies in the middle of a creation. */
  const leave = async (username: string, due: Date) => {
    const record: StaticRoleRecord = {
      id: 'left',
      username,
      rotationPeriodMs: 60_000,
      skippedImport: false,
      creating: true,
      accounts: [`name:${username}`],
      nextRotation: new Date(Date.now() + 60_000),
      account: NEW_ACCOUNT,
    }
    await engine.store.commit([
      put(staticRoleKind, `${MOUNT.id}/left`, record, { expected: 0, due: accountDue(MOUNT.id, NEW_ACCOUNT, due) }),
      put(accountKind, `${MOUNT.id}/name:${username}`, { role: 'left', id: 'left' }, { expected: 0 }),
    ])
  }

  test('a creation that did not end is invisible; asked for again it ends, asked for otherwise it waits', async () => {
    const uid = await account('left-1')
    await leave(uid, new Date(Date.now() + 60_000))
    expect((await engine.request('read', 'static-role/left')).reply).toBeUndefined()
    expect(await keys('static-role')).toEqual([])
    await expect(engine.read('static-cred/left')).rejects.toEqual(refusedAs('invalid', 'unknown role'))
    await expect(engine.write('rotate-role/left')).rejects.toEqual(refusedAs('invalid', "role doesn't exist"))
    await expect(engine.write('static-role/left', { username: 'other', rotation_period: 60 })).rejects.toEqual(
      refusedAs('unavailable', 'has not ended yet'),
    )
    await engine.write('static-role/left', { username: uid, rotation_period: 60, skip_import_rotation: false })
    expect(await binds(dnOf(uid), text((await engine.read('static-cred/left'))['password']))).toBe(true)
    expect(await keys('static-role')).toEqual(['left'])
  })

  test('a creation that ended in the background is confirmed to whoever asks for it again, once', async () => {
    const uid = await account('left-2')
    await leave(uid, new Date())
    engine.start()
    await until(async () => (await engine.request('read', 'static-role/left')).reply !== undefined)
    const asked = { username: uid, rotation_period: 60, skip_import_rotation: false }
    await expect(engine.write('static-role/left', { ...asked, rotation_period: 61 })).rejects.toEqual(
      refusedAs('invalid', 'skip_import_rotation'),
    )
    await engine.write('static-role/left', asked)
    await expect(engine.write('static-role/left', asked)).rejects.toEqual(refusedAs('invalid', 'skip_import_rotation'))
    expect(await engine.read('static-role/left')).toMatchObject({ credential_version: 1 })
  })

  test('after a restore a password is proven by a bind before it is served, and turned anew when it is outdated', async () => {
    const [good, old] = [await account('restored-1'), await account('restored-2')]
    await engine.write('static-role/good', { username: good, rotation_period: '1h' })
    await engine.write('static-role/old', { username: old, rotation_period: '1h' })
    const before = text((await engine.read('static-cred/good'))['password'])
    await exec('ldappasswd', [
      '-x',
      '-H',
      slapd.url,
      '-D',
      `cn=admin,${SUFFIX}`,
      '-w',
      'admin-secret',
      '-s',
      'later',
      dnOf(old),
    ])
    const file = join(scratch, 'restored.db')
    await engine.store.snapshot(file)
    await using after = await startLdapEngine({ driver: openSqliteDriver(file) })
    await after.store.commit([setRestoreMark(new Date())])
    await after.write('config', { url: 'ldap://127.0.0.1:1' })
    await expect(after.read('static-cred/good')).rejects.toMatchObject({ kind: 'unavailable' })
    await after.write('config', { url: slapd.url })
    expect(text((await after.read('static-cred/good'))['password'])).toBe(before)
    const turned = await after.read('static-cred/old')
    expect(turned).toMatchObject({ credential_version: 2 })
    expect(await binds(dnOf(old), text(turned['password']))).toBe(true)
  })

  test('the default of the mount decides where a role does not say', async () => {
    await engine.write('config', { skip_static_role_import_rotation: true })
    await engine.write('static-role/skipped', { username: 'static-2', rotation_period: 60 })
    expect(await engine.read('static-cred/skipped')).toMatchObject({ password: '' })
    await engine.request('delete', 'static-role/skipped')
    await engine.write('static-role/turned', { username: 'static-2', rotation_period: 60, skip_import_rotation: false })
    expect(await engine.read('static-role/turned')).toMatchObject({ credential_version: 1 })
  })

  test('a role by DN: its username is only reported', async () => {
    const uid = await account('by-dn')
    await engine.write('static-role/x', { username: 'called-so', dn: dnOf(uid), rotation_period: 60 })
    const cred = await engine.read('static-cred/x')
    expect(cred).toMatchObject({ username: 'called-so', dn: dnOf(uid) })
    expect(await binds(dnOf(uid), text(cred['password']))).toBe(true)
    await expect(engine.write('static-role/x', { dn: '' })).rejects.toEqual(refusedAs('invalid', 'dn cannot'))
    await engine.write('static-role/x', { dn: dnOf(uid), username: 'called-so' })
  })

  test('a new period counts from the last rotation and may be due at once', async () => {
    const uid = await account('period')
    await engine.write('static-role/x', { username: uid, rotation_period: '1h' })
    const last = Date.parse(text((await engine.read('static-role/x'))['last_vault_rotation']))
    await engine.write('static-role/x', { rotation_period: '2h' })
    const next = Date.parse(text((await engine.read('static-role/x'))['next_rotation']))
    expect(next).toBeGreaterThan(last + 7_190_000)
    expect(next).toBeLessThanOrEqual(last + 7_200_000)
    expect(await engine.read('static-role/x')).toMatchObject({ credential_version: 1, rotation_period: 7200 })
    engine.start()
    await engine.write('static-role/x', { rotation_period: 5 })
    const turned = await until(async () => {
      const cred = await engine.read('static-cred/x')
      return cred['credential_version'] === 2 && cred
    })
    expect(await binds(dnOf(uid), text(turned['password']))).toBe(true)
  })

  test('with the directory down nothing is created, and the same account can be used afterwards', async () => {
    const uid = await account('down')
    await engine.write('config', { url: 'ldap://127.0.0.1:1' })
    await expect(engine.write('static-role/x', { username: uid, rotation_period: 60 })).rejects.toEqual(
      refusedAs('unavailable', 'nothing was created'),
    )
    expect((await engine.request('read', 'static-role/x')).reply).toBeUndefined()
    expect(await keys('static-role')).toEqual([])
    expect(await engine.events()).not.toContain('static-role-create static-role/x')
    await engine.write('config', { url: slapd.url })
    await engine.write('static-role/y', { username: uid, rotation_period: 60 })
    expect(await binds(dnOf(uid), text((await engine.read('static-cred/y'))['password']))).toBe(true)
  })

  test('credentials are read while the directory is down, with a warning once rotation fails', async () => {
    const uid = await account('outage')
    await engine.write('static-role/x', { username: uid, rotation_period: '1h' })
    const before = await engine.read('static-cred/x')
    await engine.write('config', { url: 'ldap://127.0.0.1:1' })
    await expect(engine.write('rotate-role/x')).rejects.toEqual(refusedAs('unavailable', 'safe'))
    const { reply, warnings } = await engine.request('read', 'static-cred/x')
    expect(reply).toMatchObject({ data: { credential_version: 1, ttl: 0 } })
    expect(text((await engine.read('static-cred/x'))['password'])).toBe(text(before['password']))
    expect(warnings.join()).toMatch(/fails|not ended/)
    expect(await engine.read('static-role/x')).toMatchObject({ last_error: { class: expect.any(String) } })
    // A corrected configuration is a new chance at once.
    engine.start()
    await engine.write('config', { url: slapd.url })
    await until(async () => (await engine.read('static-cred/x'))['credential_version'] === 2)
  })

  test('two roles that find out by their searches that they mean one account: the second is refused', async () => {
    const uid = await account('found-twice')
    await engine.write('static-role/by-name', { username: uid, rotation_period: 60 })
    await expect(
      engine.write('static-role/by-dn', { username: 'other', dn: dnOf(uid), rotation_period: 60 }),
    ).rejects.toEqual(refusedAs('invalid', 'already managed'))
    await engine.request('delete', 'static-role/by-name')
    // Unresolved, the import holds only its name; the other role comes first to the entry.
    await engine.write('static-role/import', { username: uid, rotation_period: 60, skip_import_rotation: true })
    await engine.write('static-role/by-dn', { username: 'other', dn: dnOf(uid), rotation_period: 60 })
    await expect(engine.write('rotate-role/import')).rejects.toEqual(refusedAs('invalid', 'already managed'))
    expect(await binds(dnOf(uid), text((await engine.read('static-cred/by-dn'))['password']))).toBe(true)
  })

  test('the account that the mount binds as is nobody’s, by DN or by search', async () => {
    await engine.write('config', { userattr: 'cn' })
    for (const fields of [{ username: 'svc-manager' }, { username: 'x', dn: MANAGER.toUpperCase() }])
      await expect(engine.write('static-role/x', { ...fields, rotation_period: 60 })).rejects.toEqual(
        refusedAs('invalid', 'itself binds as'),
      )
    expect(await binds(MANAGER, 'svc-manager-secret')).toBe(true)
  })

  test('an entry that is not unique is refused', async () => {
    await engine.write('config', { userattr: 'objectClass' })
    await expect(engine.write('static-role/x', { username: 'inetOrgPerson', rotation_period: 60 })).rejects.toEqual(
      refusedAs('invalid', 'more than one'),
    )
  })

  test('a removed mount leaves nothing behind', async () => {
    await engine.write('static-role/x', { username: 'left', rotation_period: 60, skip_import_rotation: true })
    await engine.unmount()
    expect((await engine.request('read', 'config')).reply).toBeUndefined()
    expect(await keys('static-role')).toEqual([])
    await engine.write('config', config())
    await engine.write('static-role/y', { username: 'left', rotation_period: 60, skip_import_rotation: true })
  })
})

describe('ownership', () => {
  beforeEach(async () => {
    engine = await startLdapEngine({ driver: createMemoryDriver() })
    await engine.write('config', config())
  })
  afterEach(() => engine[Symbol.asyncDispose]())
  const controller = { owner: 'cr:one', isController: true }
  const role = { username: 'owned', rotation_period: 60, skip_import_rotation: true }

  test('what a resource owns only that resource changes; everybody reads', async () => {
    await engine.write('static-role/x', role, controller)
    expect(await engine.read('static-role/x')).toMatchObject({ owner: 'cr:one' })
    await expect(engine.write('static-role/x', { rotation_period: 90 })).rejects.toEqual(
      refusedAs('invalid', 'belongs to the resource cr:one; change it there'),
    )
    await expect(engine.request('delete', 'static-role/x')).rejects.toEqual(refusedAs('invalid', 'cr:one'))
    await expect(engine.write('static-role/x', {}, { ...controller, owner: 'cr:two' })).rejects.toMatchObject({
      reason: 'name-conflict',
    })
    await engine.write('static-role/x', { rotation_period: 90 }, controller)
    await engine.request('delete', 'static-role/x', { caller: controller })
    expect((await engine.request('read', 'static-role/x')).reply).toBeUndefined()
  })

  test('a role of nobody is adopted only when asked for, without rotating, and may be left again', async () => {
    const uid = await account('adopted')
    await engine.write('static-role/x', { username: uid, rotation_period: '1h' })
    const before = await engine.read('static-cred/x')
    await expect(engine.write('static-role/x', { username: uid }, controller)).rejects.toMatchObject({
      reason: 'owned-by-api',
    })
    await expect(engine.request('delete', 'static-role/x', { caller: controller })).rejects.toMatchObject({
      reason: 'owned-by-api',
    })
    await engine.write('static-role/x', { username: uid, rotation_period: '2h', adopt: true }, controller)
    expect(await engine.read('static-role/x')).toMatchObject({ owner: 'cr:one', rotation_period: 7200 })
    expect(text((await engine.read('static-cred/x'))['password'])).toBe(text(before['password']))
    await engine.write('static-role/x', { disown: true }, controller)
    expect(await engine.read('static-role/x')).not.toHaveProperty('owner')
    await engine.write('static-role/x', { rotation_period: '3h' })
  })

  test('an owned mount’s configuration is its resource’s', async () => {
    await using owned = await startLdapEngine({ driver: createMemoryDriver(), mount: { ...MOUNT, owner: 'cr:one' } })
    await expect(owned.write('config', config())).rejects.toEqual(refusedAs('invalid', 'cr:one'))
    await owned.write('config', config(), controller)
    await expect(owned.request('delete', 'config')).rejects.toEqual(refusedAs('invalid', 'cr:one'))
    await owned.request('delete', 'config', { caller: controller })
  })
})

describe('tenancy', () => {
  const payments = tenant('payments')
  beforeAll(async () => {
    for (const ou of ['payments', 'archive'])
      await ldif([`dn: ou=${ou},${SUFFIX}`, 'changetype: add', 'objectClass: organizationalUnit'])
  })
  beforeEach(async () => {
    engine = await startLdapEngine({ driver: createMemoryDriver() })
    await engine.write('config', config())
  })
  afterEach(() => engine[Symbol.asyncDispose]())
  const allow = async (over: Record<string, unknown> = {}) => {
    const entry = {
      principals: ['kubernetes:payments'],
      kinds: ['StaticRole'],
      allowed_dns: [`ou=Payments,${SUFFIX}`],
      ...over,
    }
    const { value } = tenancyBody.parse({ entries: [entry] })
    await engine.store.commit([writeTenancy(MOUNT.id, { entries: value.entries ?? [] })])
  }
  const ask = (fields: Record<string, unknown>, name = 'payments/app', caller = payments) =>
    engine.write(`static-role/${name}`, { rotation_period: 60, ...fields }, caller)

  test('a tenant manages its accounts, and nobody’s without an entry in the table', async () => {
    const uid = await account('pay-1', 'payments')
    await expect(ask({ username: uid })).rejects.toMatchObject({ kind: 'invalid', reason: 'not-permitted' })
    await allow()
    await ask({ username: uid })
    expect(await binds(dnOf(uid, 'payments'), text((await engine.read('static-cred/payments/app'))['password']))).toBe(
      true,
    )
    await expect(ask({ username: uid }, 'app', tenant('other'))).rejects.toMatchObject({ reason: 'not-permitted' })
  })

  test('what lies outside, is denied, absent or the mount’s own account is refused in the same words, rotated or imported', async () => {
    await account('pay-root', 'payments')
    await account('pay-outside')
    await engine.write('config', { userattr: 'cn' })
    await allow({ allowed_dns: [`ou=payments,${SUFFIX}`, MANAGER], denied_dns: [dnOf('pay-root', 'payments')] })
    const words = new Set<string>()
    for (const username of ['pay-root', 'pay-outside', 'pay-absent', 'svc-manager'])
      for (const skip of [true, false])
        await ask({ username, skip_import_rotation: skip }).then(
          () => words.add('allowed'),
          (error: Error) => words.add(error.message),
        )
    await ask({ username: 'x', dn: MANAGER }).catch((error: Error) => words.add(error.message))
    expect([...words]).toEqual([expect.stringContaining('no such account')])
    expect(await keys('static-role')).toEqual([])
    for (const [uid, ou] of [
      ['pay-root', 'payments'],
      ['pay-outside', 'services'],
    ] as const)
      expect(await binds(dnOf(uid, ou), `${uid}-secret`)).toBe(true)
  })

  test('names, periods and the number of roles are bounded', async () => {
    const [one, two] = [await account('pay-2', 'payments'), await account('pay-3', 'payments')]
    await allow({ max_roles: 1, min_rotation_period: '30s' })
    await expect(ask({ username: one }, 'elsewhere/app')).rejects.toEqual(
      refusedAs('invalid', 'begin with "payments/"'),
    )
    await expect(ask({ username: one, rotation_period: 29 })).rejects.toEqual(
      refusedAs('invalid', 'at least 30 seconds'),
    )
    const both = await Promise.allSettled([ask({ username: one }, 'payments/a'), ask({ username: two }, 'payments/b')])
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    const [name] = (await keys('static-role/payments')) ?? []
    await expect(ask({ rotation_period: 10 }, `payments/${name}`)).rejects.toEqual(
      refusedAs('invalid', 'at least 30 seconds'),
    )
    await engine.request('delete', `static-role/payments/${name}`, { caller: payments })
    await ask({ username: two }, 'payments/c')
  })

  test('a role that its tenant left stays within the table until an administrator changes it', async () => {
    const uid = await account('pay-5', 'payments')
    await allow({ max_roles: 1 })
    await ask({ username: uid })
    await engine.write('static-role/payments/app', { disown: true }, payments)
    expect(await engine.read('static-role/payments/app')).not.toHaveProperty('owner')
    await engine.write('rotate-role/payments/app')
    await expect(ask({ username: uid }, 'payments/more')).rejects.toEqual(refusedAs('invalid', 'already managed'))
    const other = await account('pay-6', 'payments')
    await expect(ask({ username: other }, 'payments/more')).rejects.toEqual(refusedAs('invalid', 'max_roles'))
    await engine.store.commit([writeTenancy(MOUNT.id, { entries: [] })])
    await expect(engine.write('rotate-role/payments/app')).rejects.toMatchObject({ reason: 'not-permitted' })
    await engine.write('static-role/payments/app', { rotation_period: 90 })
    await engine.write('rotate-role/payments/app')
    await allow({ max_roles: 1 })
    await ask({ username: other }, 'payments/more')
  })

  test('a tenant adopts a role only of an account that it may manage', async () => {
    const [mine, foreign] = [await account('pay-7', 'payments'), await account('pay-foreign')]
    await allow()
    await engine.write('static-role/payments/mine', { username: mine, rotation_period: 60, skip_import_rotation: true })
    await engine.write('static-role/payments/foreign', { username: foreign, rotation_period: 60 })
    await expect(ask({ adopt: true }, 'payments/foreign')).rejects.toMatchObject({ reason: 'not-permitted' })
    await ask({ adopt: true }, 'payments/mine')
    expect(await engine.read('static-role/payments/mine')).toMatchObject({
      owner: 'cr:uid-1',
      resolved_dn: dnOf(mine, 'payments'),
      credential_version: 0,
    })
    await allow({ allowed_dns: [`ou=archive,${SUFFIX}`] })
    await expect(engine.write('rotate-role/payments/mine')).rejects.toMatchObject({ reason: 'not-permitted' })
    expect(await binds(dnOf(mine, 'payments'), `${mine}-secret`)).toBe(true)
  })

  test('an entry that moved away, or a table that changed, stops the next rotation', async () => {
    const uid = await account('pay-4', 'payments')
    await allow()
    await ask({ username: uid })
    const before = text((await engine.read('static-cred/payments/app'))['password'])
    await ldif([
      `dn: ${dnOf(uid, 'payments')}`,
      'changetype: modrdn',
      `newrdn: uid=${uid}`,
      'deleteoldrdn: 0',
      `newsuperior: ou=archive,${SUFFIX}`,
    ])
    await expect(engine.write('rotate-role/payments/app')).rejects.toMatchObject({
      kind: 'invalid',
      reason: 'not-permitted',
    })
    expect(await binds(dnOf(uid, 'archive'), before)).toBe(true)
    expect(await engine.read('static-role/payments/app')).toMatchObject({ last_error: { class: 'not-permitted' } })
    await allow({ allowed_dns: [`ou=archive,${SUFFIX}`] })
    await engine.write('rotate-role/payments/app')
    expect(await engine.read('static-role/payments/app')).toMatchObject({ resolved_dn: dnOf(uid, 'archive') })
    await engine.store.commit([writeTenancy(MOUNT.id, { entries: [] })])
    await expect(engine.write('rotate-role/payments/app')).rejects.toMatchObject({ reason: 'not-permitted' })
    expect(await binds(dnOf(uid, 'archive'), text((await engine.read('static-cred/payments/app'))['password']))).toBe(
      true,
    )
  })
})
