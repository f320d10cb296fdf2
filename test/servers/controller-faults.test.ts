import { readFile, unlink } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { invalid, unavailable } from '../../src/lib/errors.ts'
import {
  APP,
  APP_DN,
  CORP,
  type ControllerWorld,
  eventually,
  startControllerWorld,
} from '../support/controller-world.ts'
import { binds, type Slapd, slapdAvailable, startSlapd } from '../support/slapd.ts'

/** The world refuses, or what is declared cannot be had: nothing is done twice, and the Secret of a role that turns keeps what binds. */

let slapd: Slapd
let world: ControllerWorld
let root: ControllerWorld['root']

beforeAll(async () => {
  if (slapdAvailable()) slapd = await startSlapd({ BULK: '4' })
})
afterAll(async () => slapd?.stop())
beforeEach(async () => {
  world = await startControllerWorld(slapd)
  root = world.root
})
afterEach(async () => world[Symbol.asyncDispose]())

const roleIn = async () => (await root.read('ldap/static-role/demo/app'))?.data
const rotate = () => root.write('ldap/rotate-role/demo/app')
const said = (call: RegExp) => eventually(() => expect(world.condition(APP, 'SecretSynced')).toMatch(call))
/** The Secret holds the password that the engine has now, and it binds. */
const current = () =>
  eventually(async () => {
    const password = await world.secret('password')
    expect((await root.read('ldap/static-cred/demo/app'))?.data).toMatchObject({ password })
    expect(await binds(slapd, APP_DN, password)).toBe(true)
  })

describe.skipIf(!slapdAvailable())('a request to rotate is one rotation', () => {
  const ask = () => world.annotate('20-static-role.yaml', 'keyturn.dev/rotate-requested-at: "a"')

  test.each([
    ['for a while', unavailable('the API server is away'), /^False WriteFailed/],
    ['for good', invalid('the Secret is immutable'), /^False Refused/],
  ])('while the Secret cannot be written %s', async (_, fault, want) => {
    await world.putSamples()
    await world.ready(APP)
    world.faults.set('applySecret', fault)
    await ask()
    await said(want)
    expect(world.condition(APP)).toMatch(want)
    expect(world.condition(APP, 'Synced')).toBe('True Synced')
    expect(world.status(APP)).toMatchObject({ lastHandledRotateRequest: 'a', credentialVersion: 2 })
    // Looked at again, as the engine's event and every back-off do.
    await world.edit('20-static-role.yaml', (text) => text.replace('{', '{keyturn.dev/reconcile-requested-at: "r", '))
    await eventually(() => expect(world.status(APP)).toMatchObject({ lastHandledReconcileRequest: 'r' }))
    expect(world.refusals('applySecret')).toBeGreaterThan(1)
    await world.end()
    world.faults.clear()
    await world.start()
    await world.ready(APP)
    await current()
    expect(await roleIn()).toMatchObject({ credential_version: 2 })
  })

  test('that is not begun while it cannot be written down', async () => {
    await world.putSamples()
    await world.ready(APP)
    world.faults.set('writeStatus', unavailable('the API server is away'))
    await ask()
    await eventually(() => expect(world.refusals('writeStatus')).toBeGreaterThan(1))
    await world.end()
    expect(await roleIn()).toMatchObject({ credential_version: 1 })
    world.faults.clear()
    await world.start()
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 2 }))
  })

  test('whatever length its value has', async () => {
    await world.putSamples()
    await world.ready(APP)
    await world.annotate(
      '20-static-role.yaml',
      `keyturn.dev/rotate-requested-at: "${'a'.repeat(300)}", keyturn.dev/reconcile-requested-at: "${'b'.repeat(300)}"`,
    )
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 2 }))
    for (const name of ['lastHandledRotateRequest', 'lastHandledReconcileRequest'])
      expect(world.status(APP)[name]).toMatch(/^sha256:[0-9a-f]{64}$/)
    await world.end()
    await world.start()
    await rotate()
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 3 }))
    expect(await roleIn()).toMatchObject({ credential_version: 3 })
  })
})

describe.skipIf(!slapdAvailable())('the Secret of a role that turns is kept current', () => {
  test.each([
    ['Delete', '  deletionPolicy: Delete\n'],
    ['Retain', ''],
  ])('while its engine is to be deleted (%s), which is refused', async (_, policy) => {
    await world.putSamples((text) =>
      text.replace('  path: ldap\n  description', `  path: ldap\n${policy}  description`),
    )
    await world.ready(APP)
    await unlink(path.join(world.home, 'm/10-engine.yaml'))
    await eventually(() => expect(world.condition(CORP, 'Deleting')).toBe('False InUse'))
    await rotate()
    await current()
    await world.edit('20-static-role.yaml', (text) => text.replace('rotationPeriod: 1h', 'rotationPeriod: 2h'))
    await eventually(async () => expect(await roleIn()).toMatchObject({ rotation_period: 7200 }))
    expect(world.condition(APP)).toBe('True Ready')
    // Nobody moves in any more.
    const sample = await world.sample('20-static-role.yaml')
    const late = sample.replace('name: app\n', 'name: late\n').replaceAll('app-login', 'late-login')
    await world.put('21.yaml', late.replaceAll('static-1', 'static-2'))
    await eventually(() => expect(world.condition({ ...APP, name: 'late' })).toBe('False EngineNotFound'))
    for (const file of ['20-static-role.yaml', '21.yaml']) await unlink(path.join(world.home, 'm', file))
    await eventually(() => expect(world.source.get(CORP)).toBeUndefined())
  })

  test('while its period is refused', async () => {
    await world.putSamples((text) => text.replace('minRotationPeriod: 5s', 'minRotationPeriod: 30m'))
    await world.ready(APP)
    await world.edit('20-static-role.yaml', (text) => text.replace('rotationPeriod: 1h', 'rotationPeriod: 10m'))
    await eventually(() => expect(world.condition(APP)).toBe('False TargetNotPermitted'))
    await rotate()
    await current()
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 2 }))
    expect(world.condition(APP)).toBe('False TargetNotPermitted')
    expect(world.condition(APP, 'SecretSynced')).toBe('True Synced')
  })

  test('while a template of it is wrong: its key stays until it would lie', async () => {
    await world.putSamples()
    await world.ready(APP)
    const url = await world.secret('url')
    await world.edit('20-static-role.yaml', (text) => text.replace('{{.DN}}', '{{.DN | base64}}'))
    await eventually(() => expect(world.condition(APP)).toBe('False InvalidTemplate'))
    expect(await world.secret('url')).toBe(url)
    await rotate()
    await current()
    await expect(world.secret('url')).rejects.toThrow('ENOENT')
    await world.edit('20-static-role.yaml', (text) => text.replace('{{.DN | base64}}', '{{.DN}}'))
    await world.ready(APP)
    expect(await world.secret('url')).toBe(url)
  })
})

describe.skipIf(!slapdAvailable())('directories that do not answer', () => {
  test('keep no Secret of another one waiting', async () => {
    const frozen = await startSlapd({ BULK: '20' })
    await world.putSamples()
    await world.ready(APP)
    const engine = await readFile(path.join(world.home, 'm/10-engine.yaml'), 'utf8')
    await world.put(
      '11.yaml',
      engine
        .replace('name: corp\n', 'name: cold\n')
        .replace('path: ldap', 'path: cold')
        .replace(slapd.url, frozen.url)
        .replaceAll('ou=services,dc=example,dc=test"]', 'ou=bulk,dc=example,dc=test"]')
        .replace('userDN: ou=services', 'userDN: ou=bulk'),
    )
    await world.ready({ kind: 'LdapEngine', name: 'cold' })
    await frozen.freeze()
    const roles = Array.from(
      { length: 20 },
      (_, n) =>
        `apiVersion: keyturn.dev/v1alpha1\nkind: LdapStaticRole\nmetadata: {name: c${n}, namespace: demo}\nspec: {engineRef: {name: cold}, username: bulk-${n + 1}, rotationPeriod: 1h, output: {}}\n`,
    )
    await world.put('50.yaml', roles.join('---\n'))
    // Those that were begun wait for the directory; the others were told that it is not their turn.
    const waiting = () => roles.filter((_, n) => world.condition({ ...APP, name: `c${n}` }) === 'Unknown Waiting')
    await eventually(() => expect(waiting()).toHaveLength(roles.length - 8))
    await rotate()
    await current()
    frozen.thaw()
    for (const n of roles.keys()) await world.ready({ ...APP, name: `c${n}` })
    await world.end()
    await frozen.stop()
  }, 60_000)
})
