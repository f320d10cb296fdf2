import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { type Client, createClient } from '../../src/client/client.ts'
import { inProcessTransport } from '../../src/client/in-process.ts'
import { parseManifests } from '../../src/controller/source/manifests.ts'
import { startEngine } from '../../src/engine/engine.ts'
import { openFileSeal } from '../../src/engine/seal/file-seal.ts'
import { openBarrier } from '../../src/engine/seal/keyring.ts'
import { openDriver } from '../../src/engine/storage/open.ts'
import { Store } from '../../src/engine/storage/store.ts'
import { type Clock, systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom as random } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { findKind } from '../../src/schema/kinds.ts'
import { readSpec } from '../../src/schema/validate.ts'
import { binds, SUFFIX, startSlapd } from '../support/slapd.ts'
import { type Crd, narrowed } from '../support/upgrade-schema.ts'

// What every released version left behind (test/upgrade/<version>/) is read by this one: stores open, resources stay valid.

const RELEASES = path.resolve(import.meta.dirname, '../upgrade')
const CRDS = path.resolve(import.meta.dirname, '../../crds')

describe.each(readdirSync(RELEASES))('from %s', (version) => {
  const kept = path.join(RELEASES, version)
  const expected = JSON.parse(readFileSync(path.join(kept, 'expected.json'), 'utf8'))
  const root = { token: new Secret(expected.rootToken) }
  const person = { token: new Secret(expected.personToken) }

  test('its store opens, and everything in it is as it was', async () => {
    await using opened = await openKept(kept, expected.writtenAt)
    const { client, controllerToken } = opened
    const read = async (at: string, who: object) => (await client.read(at, {}, who))?.data
    expect(await read('ldap/static-cred/team/app', person)).toMatchObject({
      username: 'static-1',
      password: expected.password,
      last_password: expected.lastPassword,
      last_service_rotation: expected.rotatedAt,
      rotation_period: 31_536_000,
    })
    expect(await read('ldap/static-cred/imported', root)).toMatchObject({ username: 'static-2', password: '' })
    expect(await client.list('ldap/static-role', root)).toEqual(['held', 'imported', 'payments/', 'team/'])
    expect(await read('ldap/config', root)).toMatchObject({ userattr: 'uid' })
    expect(await read('auth/ldap/users/alice', root)).toEqual({ policies: ['reader'], groups: 'engineers' })
    expect(await read('auth/token/lookup-self', person)).toMatchObject({
      entity_id: expected.entityId,
      policies: ['default', 'reader'],
    })
    expect(await read('sys/mounts/other/tune', root)).toMatchObject({ max_lease_ttl: 172_800 })

    const controller = { token: controllerToken }
    expect(await read('sys/tenancy/ldap', controller)).toMatchObject({
      entries: [{ principals: ['kubernetes:payments'], allowed_dns: [`ou=services,${SUFFIX}`], max_roles: 5 }],
    })
    const owner = { ...controller, principal: 'kubernetes:payments', owner: 'cr:ledger' }
    expect(await read('ldap/static-cred/payments/ledger', owner)).toMatchObject({ credential_version: 1 })
    const role = { username: 'lib-1', rotation_period: '1h' }
    await expect(client.write('ldap/static-role/payments/ledger', role, root)).rejects.toThrow(
      /belongs to the resource/,
    )
  })

  test('a password that it left in the air is the one that the directory gets', async () => {
    const slapd = await startSlapd()
    try {
      await using opened = await openKept(kept, expected.writtenAt)
      await opened.client.write('ldap/config', { url: slapd.url, bindpass: 'svc-manager-secret' }, root)
      await opened.client.write('ldap/rotate-role/held', {}, root)
      const { data } = (await opened.client.read('ldap/static-cred/held', {}, root)) ?? {}
      expect(data).toMatchObject({ password: expected.pendingPassword, credential_version: 2 })
      expect(await binds(slapd, `uid=lib-2,ou=services,${SUFFIX}`, expected.pendingPassword)).toBe(true)
    } finally {
      await slapd.stop()
    }
  })

  test.each(readdirSync(path.join(kept, 'crds')))('resources that %s admitted are admitted still', (file) => {
    const crdOf = (folder: string): Crd => parse(readFileSync(path.join(folder, file), 'utf8'))
    expect(narrowed(crdOf(path.join(kept, 'crds')), crdOf(CRDS))).toEqual([])
  })

  test.each(readdirSync(path.join(kept, 'resources')))('its %s means something still', (file) => {
    const resources = parseManifests(file, readFileSync(path.join(kept, 'resources', file), 'utf8'))
    for (const { kind, name, body } of resources) {
      const known = findKind(kind)
      if (known) expect(readSpec(known, body['spec'], { strict: true }), `${kind} ${name}`).toHaveProperty('spec')
    }
  })
})

const crd = (schema: object, { scope = 'Namespaced', name = 'v1' } = {}): Crd => ({
  spec: { scope, versions: [{ name, served: true, schema: { openAPIV3Schema: schema } }] },
})
const text = { type: 'string' }

test.each<[string, Crd, Crd, string[]]>([
  ['nothing', crd({ properties: { a: text } }), crd({ properties: { a: text, b: text } }), []],
  ['a wider limit', crd({ maxLength: 5, minimum: 3 }), crd({ maxLength: 6 }), []],
  ['a scope', crd({}), crd({}, { scope: 'Cluster' }), ['the scope is Cluster, was Namespaced']],
  ['a version', crd({}), crd({}, { name: 'v2' }), ['the version v1 is not served']],
  ['a field', crd({ properties: { a: text } }), crd({ properties: {} }), ['v1.a is gone']],
  ['a required field', crd({}), crd({ required: ['a'] }), ['v1.a is required now']],
  ['a word', crd({ enum: ['a', 'b'] }), crd({ enum: ['a'] }), ['v1 no longer takes b']],
  ['words', crd({}), crd({ enum: ['a'] }), ['v1 takes only a']],
  ['a lower limit', crd({ items: {} }), crd({ items: {}, minItems: 1 }), ['v1: minItems is larger']],
  ['an upper limit', crd({ items: {} }), crd({ items: { maximum: 9 } }), ['v1[]: maximum is smaller']],
  ['a pattern', crd({ pattern: 'a' }), crd({ pattern: 'b' }), ['v1: pattern is another one']],
  ['a rule', crd({}), crd({ 'x-kubernetes-validations': [{ rule: 'self > 1' }] }), ['v1: new rule self > 1']],
])('a definition that is narrower by %s is found out', (_, old, now, found) => {
  expect(narrowed(old, now)).toEqual(found)
})

interface Opened extends AsyncDisposable {
  readonly client: Client
  readonly controllerToken: Secret
}

/** This version's engine over a copy of a kept store, soon after that was written: its tokens would have ended by now. */
async function openKept(kept: string, writtenAt: string): Promise<Opened> {
  await using stack = new AsyncDisposableStack()
  const work = mkdtempSync(path.join(tmpdir(), 'kt-upgrade-'))
  stack.defer(() => rmSync(work, { recursive: true }))
  for (const file of ['keyturn.db', 'seal-key']) cpSync(path.join(kept, file), path.join(work, file))
  const sinceMs = Date.now() - Date.parse(writtenAt)
  const clock: Clock = { ...systemClock, now: () => new Date(Date.now() - sinceMs) }
  const driver = stack.use(openDriver(work))
  const barrier = await openBarrier(driver, openFileSeal(path.join(work, 'seal-key')))
  const engine = stack.use(
    await startEngine({
      store: new Store(driver, barrier, clock),
      barrier,
      isExclusive: true,
      clock,
      random,
      log: createLogger({ level: 'silent' }),
      audit: undefined,
      version: 'test',
      snapshotDir: undefined,
      keepRootToken: () => Promise.reject(new Error('the kept store has a root token')),
    }),
  )
  const client = stack.use(createClient({ transport: inProcessTransport({ engine, random }), clock, random }))
  const resources = stack.move()
  return { client, controllerToken: engine.controllerToken, [Symbol.asyncDispose]: () => resources.disposeAsync() }
}
