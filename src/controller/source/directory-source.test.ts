import { mkdir, mkdtemp, readFile, rename, rm, stat, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { type Clock, systemClock } from '../../lib/clock.ts'
import { createLogger } from '../../lib/log.ts'
import { systemRandom } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'
import { openStandalone } from './directory-source.ts'
import type { ResourceRef, SecretWriteRequest, Sink, Source } from './source.ts'

let home: string
let stop: AbortController
let source: Source
let sink: Sink
let changes: string[]

const ROLE = { kind: 'LdapStaticRole', namespace: 'demo', name: 'app' }
const role = (spec: string) => `
apiVersion: keyturn.dev/v1alpha1
kind: LdapStaticRole
metadata: {name: app, namespace: demo}
spec: ${spec}
`
const GOOD = role('{engineRef: {name: corp}, username: static-1, rotationPeriod: 1h}')

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'kt-dir-'))
  await mkdir(join(home, 'm'))
})
afterEach(async () => {
  stop.abort()
  await rm(home, { recursive: true, force: true })
})

async function open(clock: Clock = systemClock) {
  stop = new AbortController()
  changes = []
  const log = createLogger({ level: 'silent' })
  const pair = await openStandalone({
    manifests: join(home, 'm'),
    secrets: join(home, 's'),
    clock,
    random: systemRandom,
    log,
  })
  source = pair.source
  sink = pair.sink
  const onChange = (ref: ResourceRef) => changes.push(`${ref.kind} ${ref.namespace ?? ''}/${ref.name}`)
  await source.start(['LdapEngine', 'LdapStaticRole', 'AccessPolicy'], onChange, stop.signal)
}

const put = (file: string, text: string) => writeFile(join(home, 'm', file), text)
const eventually = (check: () => void) => vi.waitFor(check, { timeout: 9000, interval: 20 })
const present = () => {
  const found = source.get(ROLE)
  if (!found) throw new Error('the role is not there')
  return found
}

test('objects appear, change generation with their spec only, and keep their uid', async () => {
  await put('a.yaml', GOOD)
  await open()
  const { uid, generation } = present().metadata
  expect(uid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  expect(generation).toBe(1)

  await put('a.yaml', GOOD.replace('namespace: demo', 'namespace: demo, annotations: {a: b}'))
  await eventually(() => expect(present().metadata.annotations).toEqual({ a: 'b' }))
  expect(present().metadata.generation).toBe(1)

  await put('new.tmp', GOOD.replace('1h', '2h'))
  await rename(join(home, 'm/new.tmp'), join(home, 'm/a.yaml'))
  await eventually(() => expect(present().metadata.generation).toBe(2))
  expect(present()).toMatchObject({ spec: { rotationPeriod: '2h' }, metadata: { uid } })
})

test('files in folders count, also in one that came later', async () => {
  await open()
  await mkdir(join(home, 'm/team/a'), { recursive: true })
  await put('team/a/role.yaml', GOOD)
  await eventually(() => present())
  await put('team/a/role.yaml', GOOD.replace('1h', '2h'))
  await eventually(() => expect(present().metadata.generation).toBe(2))
  await put('team/a/role.yaml', GOOD.replace('1h', '3h'))
  await eventually(() => expect(present().metadata.generation).toBe(3))
})

test('a broken file keeps the last good state; so does one that was broken while nothing ran', async () => {
  await put('a.yaml', GOOD)
  await open()
  await put('a.yaml', 'kind: [')
  await put(
    'b.yaml',
    `apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: keyturn-system}\nstringData: {k: v}`,
  )
  await eventually(() => expect(changes).toContain('Secret keyturn-system/x'))
  expect(present().metadata.deletionTimestamp).toBeUndefined()
  stop.abort()
  await open()
  expect(present()).toMatchObject({ metadata: { generation: 1 }, spec: { username: 'static-1' } })
})

test.each([
  [
    'an immutable field',
    '{engineRef: {name: corp}, username: other, rotationPeriod: 1h}',
    'username cannot be changed',
  ],
  [
    'an optional immutable field added',
    '{engineRef: {name: corp}, username: static-1, rotationPeriod: 1h, dn: "cn=x"}',
    'dn cannot be changed',
  ],
  [
    'an unknown field',
    '{engineRef: {name: corp}, username: static-1, rotationPeriod: 1h, verify: {}}',
    'verify: unknown field',
  ],
  ['a bad value', '{engineRef: {name: corp}, username: static-1, rotationPeriod: 1s}', 'at least 5 seconds'],
])('%s: the old spec stays and a condition says why', async (_, spec, fragment) => {
  await put('a.yaml', GOOD)
  await open()
  await put('a.yaml', role(spec))
  await eventually(() => expect(changes.filter((change) => change.startsWith('LdapStaticRole'))).toHaveLength(2))
  expect(present()).toMatchObject({ spec: { username: 'static-1', rotationPeriod: '1h' }, metadata: { generation: 1 } })
  await sink.writeStatus(present(), { observedGeneration: 1, conditions: [] })
  expect(present().status).toMatchObject({
    conditions: [{ type: 'ManifestInForce', status: 'False', message: expect.stringContaining(fragment) }],
  })
})

test('a removed document is deleted at once without finalizers, else through a deletion timestamp', async () => {
  await put('a.yaml', GOOD)
  await open()
  await unlink(join(home, 'm/a.yaml'))
  await eventually(() => expect(source.get(ROLE)).toBeUndefined())

  await put('a.yaml', GOOD)
  await eventually(() => present())
  await sink.addFinalizer(present(), 'keyturn.dev/engine')
  await unlink(join(home, 'm/a.yaml'))
  await eventually(() => expect(present().metadata.deletionTimestamp).toBeInstanceOf(Date))
  await sink.removeFinalizer(present(), 'keyturn.dev/engine')
  expect(source.get(ROLE)).toBeUndefined()
})

test('a file that is away for a moment deletes nothing', async () => {
  await put('a.yaml', GOOD)
  // However slow the machine: no time passes while the file is away.
  await open({ ...systemClock, monotonicMs: () => 0 })
  await unlink(join(home, 'm/a.yaml'))
  await put('b.yaml', `apiVersion: v1\nkind: Namespace\nmetadata: {name: demo, labels: {team: a}}`)
  await eventually(() => expect(changes).toContain('Namespace /demo'))
  await put('a.yaml', GOOD)
  await expect(source.namespaceLabels('demo')).resolves.toMatchObject({ team: 'a' })
  await put('c.yaml', `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: keyturn-system}\ndata: {k: v}`)
  await eventually(() => expect(changes).toContain('ConfigMap keyturn-system/ca'))
  expect(present().metadata.generation).toBe(1)
})

test('an object whose document vanished while nothing ran is still there to be cleaned up', async () => {
  await put('a.yaml', GOOD)
  await open()
  await sink.addFinalizer(present(), 'keyturn.dev/engine')
  await sink.writeStatus(present(), { credentialVersion: 4 })
  stop.abort()
  await unlink(join(home, 'm/a.yaml'))
  await open()
  expect(present()).toMatchObject({ status: { credentialVersion: 4 } })
  await eventually(() => expect(present().metadata.deletionTimestamp).toBeInstanceOf(Date))
})

test('references resolve to Secret and ConfigMap documents', async () => {
  await put(
    'a.yaml',
    `apiVersion: v1
kind: Secret
metadata: {name: bind, namespace: keyturn-system}
data: {password: cGxhbnRlZA==}
stringData: {other: text}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ca, namespace: keyturn-system}
data: {ca.crt: pem}`,
  )
  await open()
  const ref = { namespace: 'keyturn-system', name: 'bind' }
  expect((await source.readSecretKey({ ...ref, key: 'password' }))?.reveal()).toBe('planted')
  expect((await source.readSecret(ref))?.get('other')?.reveal()).toBe('text')
  expect(await source.readSecretKey({ ...ref, key: 'absent' })).toBeUndefined()
  expect(await source.readConfigMapKey({ namespace: 'keyturn-system', name: 'ca', key: 'ca.crt' })).toBe('pem')
})

test('the first one of two documents with one name counts, and reserved names are refused', async () => {
  await put('a.yaml', `${GOOD}---${GOOD.replace('1h', '9h')}`)
  await put('p.yaml', `apiVersion: keyturn.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: root}\nspec: {policy: x}`)
  await open()
  expect(present().spec).toMatchObject({ rotationPeriod: '1h' })
  expect(source.list('AccessPolicy')).toEqual([])
})

const request: SecretWriteRequest = {
  namespace: 'demo',
  name: 'app',
  type: 'Opaque',
  data: new Map([
    ['username', new Secret('static-1')],
    ['password', new Secret('one')],
  ]),
  labels: {},
  annotations: {},
  mode: 'Create',
}
const file = (key: string) => join(home, 's/demo/app', key)

test('a Secret is files of 0600 that change together; keys no longer wanted go', async () => {
  await open()
  const first = await sink.applySecret(request)
  expect(first.result).toBe('written')
  const uid = first.result === 'written' ? first.uid : ''
  expect(await readFile(file('password'), 'utf8')).toBe('one')
  expect((await stat(file('password'))).mode & 0o777).toBe(0o600)
  expect((await stat(join(home, 's/demo/app'))).mode & 0o777).toBe(0o700)

  const second = await sink.applySecret({ ...request, uid, data: new Map([['password', new Secret('two')]]) })
  expect(second).toMatchObject({ result: 'written', uid })
  expect(await readFile(file('password'), 'utf8')).toBe('two')
  await expect(stat(file('username'))).rejects.toThrow('ENOENT')
  expect(source.outputSecret({ namespace: 'demo', name: 'app' })).toMatchObject({ uid, managedKeys: ['password'] })

  await sink.deleteSecret({ namespace: 'demo', name: 'app' }, 'another')
  expect(await readFile(file('password'), 'utf8')).toBe('two')
  await sink.deleteSecret({ namespace: 'demo', name: 'app' }, uid)
  await expect(stat(join(home, 's/demo/app'))).rejects.toThrow('ENOENT')
})

test('a reader never sees old and new mixed', async () => {
  await open()
  const pair = (n: number) =>
    new Map([
      ['username', new Secret(`user-${n}`)],
      ['password', new Secret(`pass-${n}`)],
    ])
  const first = await sink.applySecret({ ...request, data: pair(0) })
  const uid = first.result === 'written' ? first.uid : ''
  let reading = true
  const reader = (async () => {
    let reads = 0
    while (reading) {
      // As a careful reader does: resolve the version once, then read from it.
      const { readlink } = await import('node:fs/promises')
      const version = join(home, 's/demo/app', await readlink(file('..data')))
      const texts = await Promise.all(
        ['username', 'password'].map((key) => readFile(join(version, key), 'utf8').catch(() => undefined)),
      )
      const [user, pass] = texts
      if (user !== undefined && pass !== undefined) expect(user.slice(5)).toBe(pass.slice(5))
      reads += 1
    }
    return reads
  })()
  for (let n = 1; n <= 50; n++) await sink.applySecret({ ...request, uid, data: pair(n) })
  reading = false
  expect(await reader).toBeGreaterThan(0)
})

test("somebody else's directory or file is left alone", async () => {
  await open()
  await mkdir(join(home, 's/demo/app'), { recursive: true })
  await writeFile(file('password'), 'theirs')
  expect(await sink.applySecret(request)).toMatchObject({ result: 'not-owned' })
  expect(await sink.applySecret({ ...request, mode: 'Merge' })).toMatchObject({ result: 'not-owned' })
  const merged = await sink.applySecret({ ...request, mode: 'Merge', data: new Map([['dn', new Secret('cn=x')]]) })
  expect(merged.result).toBe('written')
  await sink.deleteSecret({ namespace: 'demo', name: 'app' }, merged.result === 'written' ? merged.uid : '', 'Merge')
  await expect(stat(file('dn'))).rejects.toThrow('ENOENT')
  expect(await readFile(file('password'), 'utf8')).toBe('theirs')
  expect(await sink.applySecret({ ...request, name: 'absent', mode: 'Merge' })).toMatchObject({ result: 'missing' })
})
