import { mkdir, rm, unlink } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { KubeError } from '../../src/controller/runtime/kube-error.ts'
import type { ResourceRef } from '../../src/controller/source/source.ts'
import {
  APP,
  APP_DN,
  CORP,
  type ControllerWorld,
  eventually,
  PEOPLE,
  startControllerWorld,
} from '../support/controller-world.ts'
import { binds, type Slapd, slapdAvailable, startSlapd } from '../support/slapd.ts'

/** Who has what: objects that want the same, that are in each other's way, that went without a word, and things of nobody. */

let slapd: Slapd
let world: ControllerWorld
let root: ControllerWorld['root']

beforeAll(async () => {
  if (slapdAvailable()) slapd = await startSlapd()
})
afterAll(async () => slapd?.stop())
beforeEach(async () => {
  world = await startControllerWorld(slapd)
  root = world.root
})
afterEach(async () => world[Symbol.asyncDispose]())

const MAPPING: ResourceRef = { kind: 'LdapGroupMapping', name: 'engineers' }
const POLICY: ResourceRef = { kind: 'AccessPolicy', name: 'demo-read' }
const ALL = [CORP, PEOPLE, MAPPING, POLICY, APP]
const ROLE = '20-static-role.yaml'

const says = (ref: ResourceRef, want: string, type?: string) =>
  eventually(() => expect(world.condition(ref, type)).toBe(want))
const gone = (ref: ResourceRef) => eventually(() => expect(world.source.get(ref)).toBeUndefined())
const remove = (file: string) => unlink(path.join(world.home, 'm', file))
const settled = async () => {
  await world.putSamples()
  for (const ref of ALL) await world.ready(ref)
}
/** Everything belongs to resources that are gone, and those that are there have done nothing yet. */
const orphan = async () => {
  const { client } = world
  const [engine, login, mapping, policy, role] = ALL.map((ref) => `cr:${world.source.get(ref)?.metadata.uid}`)
  await world.end()
  await rm(path.join(world.home, 's'), { recursive: true })
  const lost = { owner: 'cr:gone' }
  for (const [mount, config, owner] of [
    ['sys/mounts/ldap', 'ldap/config', engine],
    ['sys/auth/ldap', 'auth/ldap/config', login],
  ]) {
    for (const where of [config, mount]) await client.write(where ?? '', { disown: true }, { owner: owner ?? '' })
    await client.write(mount ?? '', { type: 'ldap' }, lost)
  }
  await client.write('ldap/config', { adopt: true }, lost)
  await client.write('auth/ldap/config', {}, lost)
  await client.delete('auth/ldap/groups/engineers', {}, { owner: mapping ?? '' })
  await client.write('auth/ldap/groups/engineers', { policies: 'demo-read' }, lost)
  const rules = String((await root.read('sys/policies/acl/demo-read'))?.data?.['policy'])
  await client.delete('sys/policies/acl/demo-read', {}, { owner: policy ?? '' })
  await client.write('sys/policies/acl/demo-read', { policy: rules }, lost)
  await client.write('ldap/static-role/demo/app', { disown: true }, { owner: role ?? '' })
  const principal = 'kubernetes:demo'
  await client.write('ldap/static-role/demo/app', { adopt: true }, { ...lost, principal })
  await world.start()
}
const part = async (file: string, kind: string) => {
  const documents = (await world.sample(file)).split(/^---\n/m)
  return documents.find((text) => text.includes(`kind: ${kind}\n`)) ?? ''
}

describe.skipIf(!slapdAvailable())('two that want the same', () => {
  test.each([
    ['path of an engine', '10-engine.yaml', 'LdapEngine', 'corp', true],
    ['path of a login mount', '30-login.yaml', 'LdapAuth', 'people', false],
    ['group', '30-login.yaml', 'LdapGroupMapping', 'engineers', false],
  ])('%s: the second is told, and has it when the first goes', async (_, file, kind, name) => {
    await world.put('00-secrets.yaml', await world.sample('00-secrets.yaml'))
    const text = await part(file, kind)
    if (kind === 'LdapGroupMapping') await world.put('a.yaml', await part(file, 'LdapAuth'))
    await world.put('b.yaml', text)
    await world.ready({ kind, name })
    await world.put('c.yaml', text.replace(`name: ${name}\n`, 'name: second\n'))
    const second = { kind, name: 'second' }
    await says(second, 'False NameConflict')
    expect(world.condition(second, 'Accepted')).toBe('False NameConflict')
    expect(world.condition(second, 'Stalled')).toBe('True NeedsUserAction')
    await remove('b.yaml')
    await world.ready(second)
  })
})

describe.skipIf(!slapdAvailable())('what stands in the way of a deletion', () => {
  test('roles of the API: the engine goes when they are gone', async () => {
    await world.putSamples((text) =>
      text.replace('  path: ldap\n  description', '  path: ldap\n  deletionPolicy: Delete\n  description'),
    )
    await world.ready(APP)
    await remove(ROLE)
    await gone(APP)
    await root.write('ldap/static-role/mine', { username: 'static-2', rotation_period: '1h' })
    await remove('10-engine.yaml')
    await says(CORP, 'False InUse', 'Deleting')
    await root.delete('ldap/static-role/mine')
    await gone(CORP)
  }, 40_000)

  test('whoever gives a policy', async () => {
    await settled()
    await eventually(() => expect(world.status(POLICY)).toMatchObject({ usedBy: 1 }))
    const [login, mapping] = [await part('30-login.yaml', 'LdapAuth'), await part('30-login.yaml', 'LdapGroupMapping')]
    await world.put('30-login.yaml', `${login}---\n${mapping}`)
    await says(POLICY, 'False InUse', 'Deleting')
    expect(await root.read('sys/policies/acl/demo-read')).toBeDefined()
    await world.put('30-login.yaml', `${login}---\n${mapping.replace('[demo-read]', '[other]')}`)
    await gone(POLICY)
    expect(await root.read('sys/policies/acl/demo-read')).toBeUndefined()
  })

  test.each([
    ['we may not touch it', new KubeError('delete Secret', { status: 403 })],
    ['the cluster takes it with its owner', new KubeError('delete Secret', { status: 503 })],
  ])('not the Secret: %s', async (_, fault) => {
    await settled()
    world.faults.set('deleteSecret', fault)
    await remove(ROLE)
    await gone(APP)
    expect(await root.read('ldap/static-role/demo/app')).toBeUndefined()
    expect(world.eventsOf(APP)).toContainEqual(expect.objectContaining({ type: 'Warning', reason: 'SecretNotRemoved' }))
  })

  test('a Secret that we merged into, until our keys are out of it', async () => {
    await mkdir(path.join(world.home, 's/demo/app-login'), { recursive: true })
    await world.putSamples((text) => text.replace('    name: app-login\n', '    name: app-login\n    mode: Merge\n'))
    await world.ready(APP)
    world.faults.set('deleteSecret', new KubeError('patch Secret', { status: 503 }))
    await remove(ROLE)
    await says(APP, 'False SecretNotRemoved', 'Deleting')
    world.faults.clear()
    await gone(APP)
    await expect(world.secret('password')).rejects.toThrow('ENOENT')
  }, 40_000)

  test('a cluster that is away is not called the engine', async () => {
    world.faults.set('addFinalizer', new KubeError('apply', { status: 503 }))
    await world.putSamples()
    await says(CORP, 'False ClusterUnavailable', 'Synced')
    world.faults.clear()
    await world.ready(APP)
  })
})

describe.skipIf(!slapdAvailable())('a resource that went without letting go', () => {
  test('and came again under another uid: its mounts, mappings and policies are its own again, its role when asked to', async () => {
    await settled()
    const password = await world.secret('password')
    await orphan()
    for (const ref of [CORP, PEOPLE, MAPPING, POLICY]) await world.ready(ref)
    await says(APP, 'False NameConflict')
    expect(world.messageOf(APP, 'Accepted')).toContain('adoptionPolicy: Adopt')
    await world.edit(ROLE, (text) => text.replace('  rotationPeriod', '  adoptionPolicy: Adopt\n  rotationPeriod'))
    await world.ready(APP)
    expect(await world.secret('password')).toBe(password)
    expect(await binds(slapd, APP_DN, password)).toBe(true)
    expect((await root.read('ldap/static-role/demo/app'))?.data).toMatchObject({
      credential_version: 1,
      owner: `cr:${world.source.get(APP)?.metadata.uid}`,
    })
    expect(world.eventsOf(APP).filter(({ reason }) => reason === 'Adopted')).toHaveLength(1)
  })

  test('is not taken for gone while it is there', async () => {
    await settled()
    const sample = (await world.sample(ROLE)).replace('  rotationPeriod', '  adoptionPolicy: Adopt\n  rotationPeriod')
    await world.put('21.yaml', sample.replace('name: app\n', 'name: thief\n').replaceAll('app-login', 'thief-login'))
    await says({ ...APP, name: 'thief' }, 'False NameConflict')
    await world.ready(APP)
  })

  test('because it was deleted by force leaves its role to everybody', async () => {
    await settled()
    await world.annotate(ROLE, 'keyturn.dev/force-delete: "true"')
    await eventually(() => expect(world.source.get(APP)?.metadata.annotations).not.toEqual({}))
    await remove(ROLE)
    await gone(APP)
    expect(world.eventsOf(APP)).toContainEqual(expect.objectContaining({ reason: 'Orphaned' }))
    expect((await root.read('ldap/static-role/demo/app'))?.data).not.toHaveProperty('owner')
  })

  test.each([
    ['an engine with roles', CORP, '10-engine.yaml', 'sys/mounts/ldap/tune'],
    ['a login mount with mappings', PEOPLE, '30-login.yaml', 'sys/auth/ldap/tune'],
  ])('by force: %s', async (_, ref, file, tune) => {
    await settled()
    await world.annotate(file, 'keyturn.dev/force-delete: "true"')
    await eventually(() => expect(world.source.get(ref)?.metadata.annotations).not.toEqual({}))
    await remove(file)
    await gone(ref)
    await root.write(tune, { description: 'mine' })
  })
})

describe.skipIf(!slapdAvailable())('what was made through the API', () => {
  test('is replaced where a manifest says so, and what it was is told', async () => {
    await root.write('ldap/config', {
      url: slapd.url,
      binddn: 'cn=admin,dc=example,dc=test',
      bindpass: 'admin-secret',
      userdn: 'dc=example,dc=test',
    })
    await root.write('auth/ldap/groups/engineers', { policies: 'root-like,other' })
    await settled()
    const told = (ref: ResourceRef) =>
      world
        .eventsOf(ref)
        .filter(({ reason }) => reason === 'Adopted')
        .map(({ note }) => note)
    expect(told(MAPPING)).toEqual([expect.stringContaining('other,root-like')])
    expect(told(CORP)).toEqual([expect.stringMatching(/binddn: "cn=admin.*→ "cn=svc-manager.*userdn: /)])
    expect(told(PEOPLE)).toEqual([])
  })

  test('a role is taken over with a word on what changes', async () => {
    await world.putSamples()
    await remove(ROLE)
    await world.ready(CORP)
    await gone(APP)
    await root.write('ldap/static-role/demo/app', { username: 'static-1', dn: APP_DN, rotation_period: '30m' })
    await world.put(
      ROLE,
      (await world.sample(ROLE)).replace('  rotationPeriod', '  adoptionPolicy: Adopt\n  rotationPeriod'),
    )
    await world.ready(APP)
    expect(world.eventsOf(APP)).toContainEqual(
      expect.objectContaining({
        reason: 'Adopted',
        note: expect.stringContaining('rotation_period: "1800s" → "3600s"'),
      }),
    )
  })
})
