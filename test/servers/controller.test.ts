import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Client, createClient } from '../../src/client/client.ts'
import { inProcessTransport } from '../../src/client/in-process.ts'
import { startController } from '../../src/controller/controller.ts'
import { openStandalone } from '../../src/controller/source/directory-source.ts'
import type { ResourceRef, Source } from '../../src/controller/source/source.ts'
import { type Engine, startEngine } from '../../src/engine/engine.ts'
import { staticRoleKind } from '../../src/engine/secrets/ldap/records.ts'
import { put as putRecord, type Store } from '../../src/engine/storage/store.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { openEngineStore } from '../support/engine-store.ts'
import { binds, type Slapd, slapdAvailable, startSlapd } from '../support/slapd.ts'

/** The controller over a directory of manifests, the real engine in the same process, a real directory. */

const SAMPLES = path.resolve(import.meta.dirname, '../../config/samples')
const DN = 'uid=static-1,ou=services,dc=example,dc=test'
const APP: ResourceRef = { kind: 'LdapStaticRole', namespace: 'demo', name: 'app' }

let slapd: Slapd
let home: string
let engine: Engine
let store: Store
let stop: AbortController
let running: Promise<void>
let source: Source
let client: Client
let root: Client

beforeAll(async () => {
  if (slapdAvailable()) slapd = await startSlapd()
})
afterAll(async () => slapd?.stop())

beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'kt-ctl-'))
  await mkdir(path.join(home, 'm'))
  const opened = await openEngineStore(systemClock)
  const { barrier } = opened
  store = opened.store
  const clock = systemClock
  const random = systemRandom
  const log = createLogger({ level: process.env['KEYTURN_LOG_LEVEL'] ?? 'silent' })
  let rootToken: Secret | undefined
  engine = await startEngine({
    store,
    barrier,
    isExclusive: true,
    clock,
    random,
    log,
    audit: undefined,
    version: '0.0.0',
    snapshotDir: undefined,
    keepRootToken: async (token) => {
      rootToken = token
    },
  })
  const transport = inProcessTransport({ engine, random })
  client = createClient({ transport, clock, random, token: async () => engine.controllerToken })
  root = createClient({ transport, clock, random, token: async () => rootToken })
  await start()
})

async function start() {
  const log = createLogger({ level: process.env['KEYTURN_LOG_LEVEL'] ?? 'silent' })
  stop = new AbortController()
  const pair = await openStandalone({
    manifests: path.join(home, 'm'),
    secrets: path.join(home, 's'),
    clock: systemClock,
    random: systemRandom,
    log,
  })
  source = pair.source
  running = startController({
    ...pair,
    client,
    clock: systemClock,
    random: systemRandom,
    log,
    signal: stop.signal,
  })
}

async function end() {
  stop.abort()
  await running.catch(() => undefined)
}

afterEach(async () => {
  await end()
  await engine[Symbol.asyncDispose]()
  await rm(home, { recursive: true, force: true })
})

const put = async (file: string, text: string) =>
  writeFile(
    path.join(home, 'm', file),
    text.replaceAll('ldap://127.0.0.1:3890', slapd.url).replace('rotationPeriod: 15s', 'rotationPeriod: 1h'),
  )
async function putSamples(edit: (text: string) => string = (text) => text) {
  for (const file of await readdir(SAMPLES)) await put(file, edit(await readFile(path.join(SAMPLES, file), 'utf8')))
}
const edit = async (file: string, change: (text: string) => string) => {
  const where = path.join(home, 'm', file)
  const text = await readFile(where, 'utf8')
  const changed = change(text)
  expect(changed).not.toBe(text)
  await writeFile(where, changed)
}
const eventually = <T>(check: () => T | Promise<T>) => vi.waitFor(check, { timeout: 15_000, interval: 20 })
const condition = (ref: ResourceRef, type = 'Ready') => {
  // biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary statuses
  const { conditions = [] } = (source.get(ref)?.status ?? {}) as any
  // biome-ignore lint/suspicious/noExplicitAny: as above
  const found = conditions.find((one: any) => one.type === type)
  return found && `${found.status} ${found.reason}`
}
const ready = (ref: ResourceRef) => eventually(() => expect(condition(ref)).toBe('True Ready'))
const secret = (key: string, name = 'app-login') => readFile(path.join(home, 's/demo', name, key), 'utf8')
// biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary statuses
const status = (ref: ResourceRef): any => source.get(ref)?.status

describe.skipIf(!slapdAvailable())('controller over manifests', () => {
  test('the samples: all are ready, the Secret binds, and a person logs in', async () => {
    await putSamples()
    for (const ref of [
      { kind: 'LdapEngine', name: 'corp' },
      { kind: 'LdapAuth', name: 'people' },
      { kind: 'LdapGroupMapping', name: 'engineers' },
      { kind: 'AccessPolicy', name: 'demo-read' },
      APP,
    ])
      await ready(ref)
    const password = await secret('password')
    expect(await binds(slapd, DN, password)).toBe(true)
    expect(await secret('username')).toBe('static-1')
    expect(await secret('dn')).toBe(DN)
    expect(await secret('url')).toBe(`${slapd.url}/${DN}`)
    expect(status(APP)).toMatchObject({
      engineRoleName: 'demo/app',
      credentialVersion: 1,
      resolvedDN: DN,
      secret: { name: 'app-login' },
    })
    expect(JSON.stringify(status(APP))).not.toContain(password)
    expect((await root.read('ldap/static-role/demo/app'))?.data).toMatchObject({ rotation_period: 3600 })
    const login = await root.login('ldap', 'alice', new Secret('alice-secret'))
    const token = new Secret(String(login.auth?.['client_token']))
    const alice = createClient({
      transport: inProcessTransport({ engine, random: systemRandom }),
      clock: systemClock,
      random: systemRandom,
      token: async () => token,
    })
    expect((await alice.read('ldap/static-cred/demo/app'))?.data).toMatchObject({ password })
    await expect(alice.read('ldap/config')).rejects.toThrow('permission denied')
  })

  test('a role whose creation has not ended goes with its object', async () => {
    await putSamples()
    await ready(APP)
    // As after a creation whose outcome is not known yet: the engine shows no such role.
    const mounts = (await root.read('sys/mounts'))?.data
    const key = `${Reflect.get(Object(mounts?.['ldap/']), 'uuid')}/demo/app`
    const stored = await store.read(staticRoleKind, key)
    if (!stored?.due) throw new Error('no record of the role')
    const { value, version, due } = stored
    await store.commit([putRecord(staticRoleKind, key, { ...value, creating: true }, { expected: version, due })])
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(source.get(APP)).toBeUndefined())
    expect(await store.read(staticRoleKind, key)).toBeUndefined()
  })

  test('a role before its engine converges by itself; a rotation reaches the Secret', async () => {
    await put('20.yaml', await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8'))
    await eventually(() => expect(condition(APP, 'Accepted')).toBe('False EngineNotFound'))
    await putSamples()
    await unlink(path.join(home, 'm/20.yaml'))
    await ready(APP)
    const before = await secret('password')
    await root.write('ldap/rotate-role/demo/app')
    await eventually(async () => expect(await secret('password')).not.toBe(before))
    expect(await binds(slapd, DN, await secret('password'))).toBe(true)
    expect(await secret('previous_password')).toBe(before)
    await eventually(() => expect(status(APP).credentialVersion).toBe(2))
  })

  test('by annotation: once for each value', async () => {
    await putSamples()
    await ready(APP)
    await edit('20-static-role.yaml', (text) =>
      text.replace('  namespace: demo\n', '  namespace: demo\n  annotations: {keyturn.dev/rotate-requested-at: "a"}\n'),
    )
    await eventually(() => expect(status(APP)).toMatchObject({ credentialVersion: 2, lastHandledRotateRequest: 'a' }))
    await edit('20-static-role.yaml', (text) =>
      text.replace('annotations: {', 'annotations: {keyturn.dev/reconcile-requested-at: "r", '),
    )
    await eventually(() => expect(status(APP)).toMatchObject({ lastHandledReconcileRequest: 'r' }))
    expect(status(APP).credentialVersion).toBe(2)
  })

  test('a period changes without rotating; what is immutable stays', async () => {
    await putSamples()
    await ready(APP)
    const before = await secret('password')
    await edit('20-static-role.yaml', (text) => text.replace('rotationPeriod: 1h', 'rotationPeriod: 2h'))
    await eventually(async () =>
      expect((await root.read('ldap/static-role/demo/app'))?.data).toMatchObject({ rotation_period: 7200 }),
    )
    await edit('20-static-role.yaml', (text) => text.replace('username: static-1', 'username: static-2'))
    await eventually(() => expect(condition(APP, 'ManifestInForce')).toBe('False Refused'))
    expect(await secret('password')).toBe(before)
  })

  test.each([
    ['an account outside', 'uid=alice,ou=people,dc=example,dc=test'],
    ['the bind account', 'cn=svc-manager,ou=services,dc=example,dc=test'],
    ['a denied account', 'cn=svc-reader,ou=services,dc=example,dc=test'],
    ['no account', 'uid=nobody,ou=services,dc=example,dc=test'],
  ])('a tenant who names %s is refused in the same words', async (_, dn) => {
    await putSamples((text) => text.replace('  dn: uid=static-1,ou=services,dc=example,dc=test', `  dn: ${dn}`))
    await eventually(() => expect(condition(APP)).toBe('False TargetNotPermitted'))
    expect(condition(APP, 'Stalled')).toBe('True NeedsUserAction')
    const said = status(APP).conditions.find((one: { type: string }) => one.type === 'Accepted').message
    expect(said).toContain('there is no such account, or this tenant may not manage it')
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')
  })

  test('a namespace without a tenancy entry is refused', async () => {
    await putSamples((text) => text.replace('names: [demo]', 'selector: {matchLabels: {team: other}}'))
    await eventually(() => expect(condition(APP)).toBe('False TargetNotPermitted'))
    await edit('00-secrets.yaml', (text) => text.replace('team: demo', 'team: other'))
    await ready(APP)
  })

  test('a password that nobody knows yet is no Secret', async () => {
    await putSamples((text) => text.replace('  rotationPeriod', '  skipImportRotation: true\n  rotationPeriod'))
    await eventually(() => expect(condition(APP)).toBe('False PasswordNotYetKnown'))
    expect(condition(APP, 'SecretSynced')).toBe('False PasswordNotYetKnown')
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')
    await root.write('ldap/rotate-role/demo/app')
    await ready(APP)
    expect(await binds(slapd, DN, await secret('password'))).toBe(true)
  })

  test('a template that is more than placeholders is refused', async () => {
    await putSamples((text) => text.replace('{{.DN}}', '{{.DN | base64}}'))
    await eventually(() => expect(condition(APP)).toBe('False InvalidTemplate'))
  })

  test('two resources for one account: the older has it, and the other when it is gone', async () => {
    await putSamples()
    await ready(APP)
    const sample = await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8')
    await put('21.yaml', sample.replace('name: app\n', 'name: second\n').replaceAll('app-login', 'second-login'))
    const second = { ...APP, name: 'second' }
    await eventually(() => expect(condition(second)).toBe('False NameConflict'))
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await ready(second)
    expect(await binds(slapd, DN, await secret('password', 'second-login'))).toBe(true)
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
  })

  test('a foreign Secret is left alone; ours is repaired', async () => {
    await mkdir(path.join(home, 's/demo/app-login'), { recursive: true })
    await writeFile(path.join(home, 's/demo/app-login/password'), 'theirs')
    await putSamples()
    await eventually(() => expect(condition(APP, 'SecretSynced')).toBe('False NotOwned'))
    expect(await secret('password')).toBe('theirs')
    await rm(path.join(home, 's/demo/app-login'), { recursive: true, maxRetries: 20, retryDelay: 10 })
    await edit('20-static-role.yaml', (text) =>
      text.replace(
        '  namespace: demo\n',
        '  namespace: demo\n  annotations: {keyturn.dev/reconcile-requested-at: "a"}\n',
      ),
    )
    await ready(APP)
    const password = await secret('password')
    await unlink(path.join(home, 's/demo/app-login/password'))
    await eventually(async () => expect(await secret('password')).toBe(password))
    await rm(path.join(home, 's/demo/app-login'), { recursive: true, maxRetries: 20, retryDelay: 10 })
    await eventually(async () => expect(await secret('password')).toBe(password))
    expect(status(APP).credentialVersion).toBe(1)
  }, 90_000)

  test('a role made through the API is taken over only when asked to, without rotating', async () => {
    await putSamples((text) =>
      text.replace('kind: LdapStaticRole', 'kind: LdapStaticRole # later').replace('name: app\n', 'name: other\n'),
    )
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await ready({ kind: 'LdapEngine', name: 'corp' })
    await eventually(async () => expect(await root.read('ldap/static-role/demo/other')).toBeUndefined())
    await root.write('ldap/static-role/demo/app', { username: 'static-1', dn: DN, rotation_period: '30m' })
    const before = (await root.read('ldap/static-cred/demo/app'))?.data?.['password']
    const sample = await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8')
    await put('20-static-role.yaml', sample)
    await eventually(() => expect(condition(APP)).toBe('False OwnedByApi'))
    await edit('20-static-role.yaml', (text) =>
      text.replace('  rotationPeriod', '  adoptionPolicy: Adopt\n  rotationPeriod'),
    )
    await ready(APP)
    expect(await secret('password')).toBe(before)
    await expect(root.write('ldap/static-role/demo/app', { rotation_period: '3h' })).rejects.toThrow(
      'belongs to the resource',
    )
  })

  test('deletion: role, files and account are let go; Retain keeps the role for everybody', async () => {
    await putSamples()
    await ready(APP)
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(source.get(APP)).toBeUndefined())
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
    await expect(stat(path.join(home, 's/demo/app-login'))).rejects.toThrow('ENOENT')

    const sample = await readFile(path.join(SAMPLES, '20-static-role.yaml'), 'utf8')
    await put('20-static-role.yaml', sample.replace('  rotationPeriod', '  deletionPolicy: Retain\n  rotationPeriod'))
    await ready(APP)
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(source.get(APP)).toBeUndefined())
    expect((await root.read('ldap/static-role/demo/app'))?.data?.['owner'] ?? '').toBe('')
  })

  test('mounts are owned while their resources are there, and left to everybody after', async () => {
    await putSamples()
    for (const [kind, name, tune] of [
      ['LdapEngine', 'corp', 'sys/mounts/ldap/tune'],
      ['LdapAuth', 'people', 'sys/auth/ldap/tune'],
    ] as const) {
      await ready({ kind, name })
      await expect(root.write(tune, { description: 'mine' })).rejects.toThrow('belongs to the resource')
    }
    await expect(root.write('ldap/config', { userdn: 'dc=x' })).rejects.toThrow('belongs to the resource')
    await expect(root.write('auth/ldap/config', { userdn: 'dc=x' })).rejects.toThrow('belongs to the resource')
    await expect(root.write('sys/mounts/ldap', { type: 'ldap', disown: true })).rejects.toThrow('only the controller')
    for (const file of ['10-engine.yaml', '30-login.yaml']) await unlink(path.join(home, 'm', file))
    await eventually(() => expect(source.list('LdapEngine').concat(source.list('LdapAuth'))).toEqual([]))
    await root.write('sys/mounts/ldap/tune', { description: 'mine' })
    await root.write('sys/auth/ldap/tune', { description: 'mine' })
    await root.write('ldap/config', { userdn: 'dc=x' })
    await root.write('auth/ldap/config', { userdn: 'dc=x' })
  })

  test('an engine in use is not deleted with its mount', async () => {
    await putSamples((text) =>
      text.replace('  path: ldap\n  description', '  path: ldap\n  deletionPolicy: Delete\n  description'),
    )
    await ready(APP)
    const corp = { kind: 'LdapEngine', name: 'corp' }
    await cp(path.join(home, 'm/10-engine.yaml'), path.join(home, 'engine.yaml'))
    await unlink(path.join(home, 'm/10-engine.yaml'))
    await eventually(() => expect(condition(corp, 'Deleting')).toBe('False InUse'))
    expect(await binds(slapd, DN, await secret('password'))).toBe(true)
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await eventually(() => expect(source.get(corp)).toBeUndefined())
    expect((await root.read('sys/mounts'))?.data).not.toHaveProperty('ldap/')
  })

  test('a restart writes nothing, and notices what vanished meanwhile', async () => {
    await putSamples()
    await ready(APP)
    const file = path.join(home, 's/.keyturn/LdapStaticRole/demo/app.json')
    const before = {
      status: await stat(file),
      secret: await readFile(path.join(home, 's/demo/app-login/..keyturn.json'), 'utf8'),
    }
    const config = (await root.read('sys/events'))?.data?.['last']
    await end()
    await start()
    await ready(APP)
    // Something that comes after whatever a restart does by itself.
    await put(
      '40.yaml',
      'apiVersion: keyturn.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: last}\nspec: {rules: [{path: a, capabilities: [read]}]}',
    )
    await ready({ kind: 'AccessPolicy', name: 'last' })
    expect((await stat(file)).mtimeMs).toBe(before.status.mtimeMs)
    expect(await readFile(path.join(home, 's/demo/app-login/..keyturn.json'), 'utf8')).toBe(before.secret)
    const events = (await root.read('sys/events', { after: Number(config) }))?.data?.['events']
    expect(JSON.stringify(events)).not.toContain('config-write')
    await end()
    await unlink(path.join(home, 'm/20-static-role.yaml'))
    await start()
    await eventually(() => expect(source.get(APP)).toBeUndefined())
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
  })

  test('a changed bind Secret is applied, an unchanged one is not', async () => {
    await putSamples((text) => text.replace('svc-manager-secret', 'wrong'))
    await eventually(() => expect(condition({ kind: 'LdapEngine', name: 'corp' })).toBe('True Ready'))
    await eventually(() => expect(condition(APP)).toMatch(/^False/))
    await edit('00-secrets.yaml', (text) => text.replace('wrong', 'svc-manager-secret'))
    await ready(APP)
  })

  test('suspended: nothing is changed until it is resumed', async () => {
    await putSamples()
    await ready(APP)
    await edit('20-static-role.yaml', (text) => text.replace('  rotationPeriod', '  suspend: true\n  rotationPeriod'))
    await eventually(() => expect(condition(APP, 'Suspended')).toBe('True Suspended'))
    const before = await secret('password')
    await root.write('ldap/rotate-role/demo/app')
    await edit('20-static-role.yaml', (text) => text.replace('suspend: true', 'suspend: true # still'))
    expect(await secret('password')).toBe(before)
    await edit('20-static-role.yaml', (text) => text.replace('suspend: true # still', 'suspend: false'))
    await eventually(async () => expect(await secret('password')).not.toBe(before))
    expect(await binds(slapd, DN, await secret('password'))).toBe(true)
  })
})
