import { mkdir, readFile, rm, stat, unlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createClient } from '../../src/client/client.ts'
import { inProcessTransport } from '../../src/client/in-process.ts'
import { staticRoleKind } from '../../src/engine/secrets/ldap/records.ts'
import { put as putRecord } from '../../src/engine/storage/store.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import {
  APP,
  type ControllerWorld,
  APP_DN as DN,
  eventually,
  SAMPLES,
  startControllerWorld,
} from '../support/controller-world.ts'
import { binds, type Slapd, slapdAvailable, startSlapd } from '../support/slapd.ts'

/** What the controller does with manifests: the real engine, a real directory. */

let slapd: Slapd
let world: ControllerWorld
let home: string
let root: ControllerWorld['root']

beforeAll(async () => {
  if (slapdAvailable()) slapd = await startSlapd()
})
afterAll(async () => slapd?.stop())

beforeEach(async () => {
  world = await startControllerWorld(slapd)
  home = world.home
  root = world.root
})
afterEach(async () => world[Symbol.asyncDispose]())

describe.skipIf(!slapdAvailable())('controller over manifests', () => {
  test('the samples: all are ready, the Secret binds, and a person logs in', async () => {
    await world.putSamples()
    for (const ref of [
      { kind: 'LdapEngine', name: 'corp' },
      { kind: 'LdapAuth', name: 'people' },
      { kind: 'LdapGroupMapping', name: 'engineers' },
      { kind: 'AccessPolicy', name: 'demo-read' },
      APP,
    ])
      await world.ready(ref)
    const password = await world.secret('password')
    expect(await binds(slapd, DN, password)).toBe(true)
    expect(await world.secret('username')).toBe('static-1')
    expect(await world.secret('dn')).toBe(DN)
    expect(await world.secret('url')).toBe(`${slapd.url}/${DN}`)
    expect(world.status(APP)).toMatchObject({
      engineRoleName: 'demo/app',
      credentialVersion: 1,
      resolvedDN: DN,
      secret: { name: 'app-login' },
    })
    expect(JSON.stringify(world.status(APP))).not.toContain(password)
    expect((await root.read('ldap/static-role/demo/app'))?.data).toMatchObject({ rotation_period: 3600 })
    const login = await root.login('ldap', 'alice', new Secret('alice-secret'))
    const token = new Secret(String(login.auth?.['client_token']))
    const alice = createClient({
      transport: inProcessTransport({ engine: world.engine, random: systemRandom }),
      clock: systemClock,
      random: systemRandom,
      token: async () => token,
    })
    expect((await alice.read('ldap/static-cred/demo/app'))?.data).toMatchObject({ password })
    await expect(alice.read('ldap/config')).rejects.toThrow('permission denied')
  })

  test('a role whose creation has not ended goes with its object', async () => {
    await world.putSamples()
    await world.ready(APP)
    // As after a creation whose outcome is not known yet: the engine shows no such role.
    const mounts = (await root.read('sys/mounts'))?.data
    const key = `${Reflect.get(Object(mounts?.['ldap/']), 'uuid')}/demo/app`
    const stored = await world.store.read(staticRoleKind, key)
    if (!stored?.due) throw new Error('no record of the role')
    const { value, version, due } = stored
    await world.store.commit([putRecord(staticRoleKind, key, { ...value, creating: true }, { expected: version, due })])
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(world.source.get(APP)).toBeUndefined())
    expect(await world.store.read(staticRoleKind, key)).toBeUndefined()
  })

  test('a role before its engine converges by itself; a rotation reaches the Secret', async () => {
    await world.put('20.yaml', await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8'))
    await eventually(() => expect(world.condition(APP, 'Accepted')).toBe('False EngineNotFound'))
    await world.putSamples()
    await unlink(path.join(home, 'm/20.yaml'))
    await world.ready(APP)
    const before = await world.secret('password')
    await root.write('ldap/rotate-role/demo/app')
    // The status is written after all keys of the Secret.
    await eventually(() => expect(world.status(APP).credentialVersion).toBe(2))
    expect(await world.secret('password')).not.toBe(before)
    expect(await binds(slapd, DN, await world.secret('password'))).toBe(true)
    expect(await world.secret('previous_password')).toBe(before)
  })

  test('by annotation: once for each value', async () => {
    await world.putSamples()
    await world.ready(APP)
    await world.edit('20-static-role.yaml', (text) =>
      text.replace('  namespace: demo\n', '  namespace: demo\n  annotations: {keyturn.dev/rotate-requested-at: "a"}\n'),
    )
    await eventually(() =>
      expect(world.status(APP)).toMatchObject({ credentialVersion: 2, lastHandledRotateRequest: 'a' }),
    )
    await world.edit('20-static-role.yaml', (text) =>
      text.replace('annotations: {', 'annotations: {keyturn.dev/reconcile-requested-at: "r", '),
    )
    await eventually(() => expect(world.status(APP)).toMatchObject({ lastHandledReconcileRequest: 'r' }))
    expect(world.status(APP).credentialVersion).toBe(2)
  })

  test('a period changes without rotating; what is immutable stays', async () => {
    await world.putSamples()
    await world.ready(APP)
    const before = await world.secret('password')
    await world.edit('20-static-role.yaml', (text) => text.replace('rotationPeriod: 1h', 'rotationPeriod: 2h'))
    await eventually(async () =>
      expect((await root.read('ldap/static-role/demo/app'))?.data).toMatchObject({ rotation_period: 7200 }),
    )
    await world.edit('20-static-role.yaml', (text) => text.replace('username: static-1', 'username: static-2'))
    await eventually(() => expect(world.condition(APP, 'ManifestInForce')).toBe('False Refused'))
    expect(await world.secret('password')).toBe(before)
  })

  test.each([
    ['an account outside', 'uid=alice,ou=people,dc=example,dc=test'],
    ['the bind account', 'cn=svc-manager,ou=services,dc=example,dc=test'],
    ['a denied account', 'cn=svc-reader,ou=services,dc=example,dc=test'],
    ['no account', 'uid=nobody,ou=services,dc=example,dc=test'],
  ])('a tenant who names %s is refused in the same words', async (_, dn) => {
    await world.putSamples((text) => text.replace('  dn: uid=static-1,ou=services,dc=example,dc=test', `  dn: ${dn}`))
    await eventually(() => expect(world.condition(APP)).toBe('False TargetNotPermitted'))
    expect(world.condition(APP, 'Stalled')).toBe('True NeedsUserAction')
    const said = world.status(APP).conditions.find((one: { type: string }) => one.type === 'Accepted').message
    expect(said).toContain('there is no such account, or this tenant may not manage it')
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')
  })

  test('a namespace without a tenancy entry is refused', async () => {
    await world.putSamples((text) => text.replace('names: [demo]', 'selector: {matchLabels: {team: other}}'))
    await eventually(() => expect(world.condition(APP)).toBe('False NamespaceNotAllowed'))
    await world.edit('00-secrets.yaml', (text) => text.replace('team: demo', 'team: other'))
    await world.ready(APP)
  })

  test('a password that nobody knows yet is no Secret', async () => {
    await world.putSamples((text) => text.replace('  rotationPeriod', '  skipImportRotation: true\n  rotationPeriod'))
    await eventually(() => expect(world.condition(APP)).toBe('False PasswordNotYetKnown'))
    expect(world.condition(APP, 'SecretSynced')).toBe('False PasswordNotYetKnown')
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')
    await root.write('ldap/rotate-role/demo/app')
    await world.ready(APP)
    expect(await binds(slapd, DN, await world.secret('password'))).toBe(true)
  })

  test('a template that is more than placeholders is refused', async () => {
    await world.putSamples((text) => text.replace('{{.DN}}', '{{.DN | base64}}'))
    await eventually(() => expect(world.condition(APP)).toBe('False InvalidTemplate'))
  })

  test('two resources for one account: the older has it, and the other when it is gone', async () => {
    await world.putSamples()
    await world.ready(APP)
    const sample = await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8')
    await world.put('21.yaml', sample.replace('name: app\n', 'name: second\n').replaceAll('app-login', 'second-login'))
    const second = { ...APP, name: 'second' }
    await eventually(() => expect(world.condition(second)).toBe('False NameConflict'))
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await world.ready(second)
    expect(await binds(slapd, DN, await world.secret('password', 'second-login'))).toBe(true)
    // The account is free before the Secret has gone, and the object goes last.
    await eventually(() => expect(world.source.get(APP)).toBeUndefined())
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
  })

  test('a foreign Secret is left alone; ours is repaired', async () => {
    await mkdir(path.join(home, 's/demo/app-login'), { recursive: true })
    await writeFile(path.join(home, 's/demo/app-login/password'), 'theirs')
    await world.putSamples()
    await eventually(() => expect(world.condition(APP, 'SecretSynced')).toBe('False NotOwned'))
    expect(await world.secret('password')).toBe('theirs')
    await rm(path.join(home, 's/demo/app-login'), { recursive: true, maxRetries: 20, retryDelay: 10 })
    await world.edit('20-static-role.yaml', (text) =>
      text.replace(
        '  namespace: demo\n',
        '  namespace: demo\n  annotations: {keyturn.dev/reconcile-requested-at: "a"}\n',
      ),
    )
    await world.ready(APP)
    const password = await world.secret('password')
    await unlink(path.join(home, 's/demo/app-login/password'))
    await eventually(async () => expect(await world.secret('password')).toBe(password))
    await rm(path.join(home, 's/demo/app-login'), { recursive: true, maxRetries: 20, retryDelay: 10 })
    await eventually(async () => expect(await world.secret('password')).toBe(password))
    expect(world.status(APP).credentialVersion).toBe(1)
  }, 90_000)

  test('a role made through the API is taken over only when asked to, without rotating', async () => {
    for (const file of ['00-secrets.yaml', '10-engine.yaml']) await world.put(file, await world.sample(file))
    await world.ready({ kind: 'LdapEngine', name: 'corp' })
    await root.write('ldap/static-role/demo/app', { username: 'static-1', dn: DN, rotation_period: '30m' })
    const before = (await root.read('ldap/static-cred/demo/app'))?.data?.['password']
    const sample = await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8')
    await world.put('20-static-role.yaml', sample)
    await eventually(() => expect(world.condition(APP)).toBe('False OwnedByApi'))
    await world.edit('20-static-role.yaml', (text) =>
      text.replace('  rotationPeriod', '  adoptionPolicy: Adopt\n  rotationPeriod'),
    )
    await world.ready(APP)
    expect(await world.secret('password')).toBe(before)
    await expect(root.write('ldap/static-role/demo/app', { rotation_period: '3h' })).rejects.toThrow(
      'belongs to the resource',
    )
  })

  test('deletion: role, files and account are let go; Retain keeps the role for everybody', async () => {
    await world.putSamples()
    await world.ready(APP)
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(world.source.get(APP)).toBeUndefined())
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')

    const sample = await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8')
    await world.put(
      '20-static-role.yaml',
      sample.replace('  rotationPeriod', '  deletionPolicy: Retain\n  rotationPeriod'),
    )
    await world.ready(APP)
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(world.source.get(APP)).toBeUndefined())
    expect((await root.read('ldap/static-role/demo/app'))?.data?.['owner'] ?? '').toBe('')
  })

  test('mounts are owned while their resources are there, and left to everybody after', async () => {
    await world.putSamples()
    for (const [kind, name, tune] of [
      ['LdapEngine', 'corp', 'sys/mounts/ldap/tune'],
      ['LdapAuth', 'people', 'sys/auth/ldap/tune'],
    ] as const) {
      await world.ready({ kind, name })
      await expect(root.write(tune, { description: 'mine' })).rejects.toThrow('belongs to the resource')
    }
    await expect(root.write('ldap/config', { userdn: 'dc=x' })).rejects.toThrow('belongs to the resource')
    await expect(root.write('auth/ldap/config', { userdn: 'dc=x' })).rejects.toThrow('belongs to the resource')
    await expect(root.write('sys/mounts/ldap', { type: 'ldap', disown: true })).rejects.toThrow('only the controller')
    for (const file of ['20-static-role.yaml', '10-engine.yaml', '30-login.yaml'])
      await unlink(path.join(home, 'm', file))
    await eventually(() => expect(world.source.list('LdapEngine').concat(world.source.list('LdapAuth'))).toEqual([]))
    await root.write('sys/mounts/ldap/tune', { description: 'mine' })
    await root.write('sys/auth/ldap/tune', { description: 'mine' })
    await root.write('ldap/config', { userdn: 'dc=x' })
    await root.write('auth/ldap/config', { userdn: 'dc=x' })
  })

  test('an engine in use is not deleted with its mount', async () => {
    await world.putSamples((text) =>
      text.replace('  path: ldap\n  description', '  path: ldap\n  deletionPolicy: Delete\n  description'),
    )
    await world.ready(APP)
    const corp = { kind: 'LdapEngine', name: 'corp' }
    await unlink(path.join(home, 'm/10-engine.yaml'))
    await eventually(() => expect(world.condition(corp, 'Deleting')).toBe('False InUse'))
    expect(await binds(slapd, DN, await world.secret('password'))).toBe(true)
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(world.source.get(corp)).toBeUndefined())
    expect((await root.read('sys/mounts'))?.data).not.toHaveProperty('ldap/')
  })

  test('a restart writes nothing, and notices what vanished meanwhile', async () => {
    await world.putSamples()
    await world.ready(APP)
    // What is seen in memory is written to its file a moment later.
    await world.end()
    const file = path.join(home, 's/.keyturn/LdapStaticRole/demo/app.json')
    const before = {
      status: await stat(file),
      secret: await readFile(path.join(home, 's/demo/app-login/..keyturn.json'), 'utf8'),
    }
    const config = (await root.read('sys/events'))?.data?.['last']
    await world.start()
    await world.ready(APP)
    // Something that comes after whatever a restart does by itself.
    await world.put(
      '40.yaml',
      'apiVersion: keyturn.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: last}\nspec: {rules: [{path: a, capabilities: [read]}]}',
    )
    await world.ready({ kind: 'AccessPolicy', name: 'last' })
    expect((await stat(file)).mtimeMs).toBe(before.status.mtimeMs)
    expect(await readFile(path.join(home, 's/demo/app-login/..keyturn.json'), 'utf8')).toBe(before.secret)
    const events = (await root.read('sys/events', { after: Number(config) }))?.data?.['events']
    expect(JSON.stringify(events)).not.toContain('config-write')
    await world.end()
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await world.start()
    await eventually(() => expect(world.source.get(APP)).toBeUndefined())
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
  })

  test('suspended: nothing is changed until it is resumed', async () => {
    await world.putSamples()
    await world.ready(APP)
    await world.edit('20-static-role.yaml', (text) =>
      text.replace('  rotationPeriod', '  suspend: true\n  rotationPeriod'),
    )
    await eventually(() => expect(world.condition(APP, 'Suspended')).toBe('True Suspended'))
    const before = await world.secret('password')
    await root.write('ldap/rotate-role/demo/app')
    await world.edit('20-static-role.yaml', (text) => text.replace('suspend: true', 'suspend: true # still'))
    expect(await world.secret('password')).toBe(before)
    await world.edit('20-static-role.yaml', (text) => text.replace('suspend: true # still', 'suspend: false'))
    await eventually(async () => expect(await world.secret('password')).not.toBe(before))
    expect(await binds(slapd, DN, await world.secret('password'))).toBe(true)
  })
})
