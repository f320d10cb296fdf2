import { describe, expect, test } from 'vitest'
import { Secret } from '../lib/secret.ts'
import { macWith } from './mac.ts'
import {
  type Credential,
  decideOutput,
  knownUid,
  outputMac,
  outputRequest,
  templateProblem,
  usableOutput,
} from './output.ts'
import type { OutputSecretMeta, Resource } from './source/source.ts'

const resource: Resource = {
  kind: 'LdapStaticRole',
  metadata: {
    name: 'app',
    namespace: 'demo',
    uid: 'u1',
    generation: 1,
    creationTimestamp: new Date(0),
    labels: { 'argocd.argoproj.io/instance': 'x' },
    annotations: {},
    finalizers: [],
  },
  spec: {},
}
const credential: Credential = {
  username: 'svc',
  dn: 'cn=svc',
  password: new Secret('new'),
  previousPassword: new Secret('old'),
  version: 7,
  lastRotation: new Date('2026-01-02T03:04:05.678Z'),
  source: 'corp/demo/app',
}
const texts = (request: ReturnType<typeof outputRequest>) =>
  Object.fromEntries([...request.data].map(([key, value]) => [key, value.reveal()]))

test('default keys, owner and labels; nothing is copied from the resource', () => {
  const request = outputRequest(resource, {}, credential, undefined)
  expect(texts(request)).toEqual({ username: 'svc', password: 'new', dn: 'cn=svc' })
  expect(request).toMatchObject({ name: 'app', namespace: 'demo', type: 'Opaque', mode: 'Create' })
  expect(request.ownerReference).toEqual({
    apiVersion: 'keyturn.dev/v1alpha1',
    kind: 'LdapStaticRole',
    name: 'app',
    uid: 'u1',
  })
  expect(request.labels).toEqual({
    'app.kubernetes.io/managed-by': 'keyturn',
    'keyturn.dev/managed': 'true',
    'keyturn.dev/owner-uid': 'u1',
  })
  expect(request.annotations).toEqual({
    'keyturn.dev/credential-version': '7',
    'keyturn.dev/last-rotation-time': '2026-01-02T03:04:05Z',
    'keyturn.dev/source': 'corp/demo/app',
  })
})

test('templates add keys and override them; the previous password on request', () => {
  const output = {
    template: { url: 'ldap://h?{{.Username}}:{{.Password}}', username: '{{.DN}}' },
    includePreviousPassword: true,
  }
  expect(texts(outputRequest(resource, output, credential, undefined))).toEqual({
    username: 'cn=svc',
    password: 'new',
    dn: 'cn=svc',
    url: 'ldap://h?svc:new',
    previous_password: 'old',
  })
  expect(templateProblem({ template: { ok: '{{.Username}}', url: '{{.Password | base64}}' } })).toContain('url')
  expect(templateProblem(output)).toBeUndefined()
})

test('the first password has none before it', () => {
  const first = { ...credential, previousPassword: new Secret(''), version: 1 }
  const request = outputRequest(resource, { includePreviousPassword: true }, first, undefined)
  expect([...request.data.keys()]).toEqual(['username', 'password', 'dn'])
})

test('keys with a wrong template are left out; nothing changes where all are right', () => {
  const output = { template: { ok: '{{.Username}}', url: '{{.Password | base64}}' }, labels: { a: 'b' } }
  expect(usableOutput(output)).toEqual({ template: { ok: '{{.Username}}' }, labels: { a: 'b' } })
  const fine = { template: { ok: '{{.Username}}' } }
  expect(usableOutput(fine)).toBe(fine)
})

test.each([
  ['Merge', { mode: 'Merge' as const }],
  ['Retain', { deletionPolicy: 'Retain' as const }],
])('%s: garbage collection must not take the Secret', (_, output) => {
  expect(outputRequest(resource, output, credential, undefined).ownerReference).toBeUndefined()
})

describe('whether to write', () => {
  const mac = macWith(new Secret('k'))
  const request = outputRequest(resource, {}, credential, 's1')
  const wantedMac = outputMac(mac, request)
  const written = { secret: { name: 'app', uid: 's1' }, mac: wantedMac }
  const seen: OutputSecretMeta = {
    uid: 's1',
    labels: request.labels,
    annotations: request.annotations,
    managedKeys: ['dn', 'password', 'username'],
    owners: [resource.metadata.uid],
  }
  test.each([
    { title: 'never written', written: { secret: undefined, mac: undefined }, seen: undefined, want: 'write' },
    { title: 'as it should be', written, seen, want: 'keep' },
    { title: 'keys cannot be told', written, seen: { ...seen, managedKeys: undefined }, want: 'keep' },
    { title: 'another value', written: { ...written, mac: 'x' }, seen, want: 'write' },
    { title: 'gone', written, seen: undefined, want: 'correct' },
    { title: "somebody else's now", written, seen: { ...seen, uid: 's2' }, want: 'correct' },
    { title: 'a key is gone', written, seen: { ...seen, managedKeys: ['dn', 'username'] }, want: 'correct' },
    { title: 'its owner is gone', written, seen: { ...seen, owners: [] }, want: 'correct' },
    {
      title: 'it has another owner too',
      written,
      seen: { ...seen, owners: ['x', ...(seen.owners ?? [])] },
      want: 'keep',
    },
    { title: 'a label is gone', written, seen: { ...seen, labels: {} }, want: 'correct' },
    { title: 'labels of others', written, seen: { ...seen, labels: { ...seen.labels, a: 'b' } }, want: 'keep' },
    {
      title: 'an annotation was changed',
      written,
      seen: { ...seen, annotations: { ...seen.annotations, 'keyturn.dev/source': 'x' } },
      want: 'correct',
    },
  ])('$title: $want', ({ written, seen, want }) => {
    expect(decideOutput(request, wantedMac, written, seen)).toBe(want)
  })

  test('the MAC tells each difference, and not without its key', () => {
    const of = (output: object, given = credential) => outputMac(mac, outputRequest(resource, output, given, 's1'))
    const all = [
      of({}),
      of({ type: 'x' }),
      of({ labels: { a: 'b' } }),
      of({ annotations: { a: 'b' } }),
      of({ deletionPolicy: 'Retain' }),
      of({}, { ...credential, password: new Secret('other') }),
      outputMac(macWith(new Secret('k2')), request),
    ]
    expect(new Set(all).size).toBe(all.length)
    expect(mac(['ab', 'c'])).not.toBe(mac(['a', 'bc']))
  })

  test.each([
    { title: 'known', written: { name: 'app', uid: 's1' }, seen, want: 's1' },
    { title: 'died before the status', written: undefined, seen, want: 's1' },
    { title: 'deleted, or without our labels', written: { name: 'app', uid: 's1' }, seen: undefined, want: 's1' },
    { title: 'written under another name', written: { name: 'old', uid: 's1' }, seen: undefined, want: undefined },
    {
      title: 'made anew by somebody',
      written: { name: 'app', uid: 's1' },
      seen: { ...seen, uid: 's2', labels: {} },
      want: undefined,
    },
    { title: 'merged before', written: { name: 'app', uid: 's1' }, seen: { ...seen, labels: {} }, want: 's1' },
  ])('uid when $title: $want', ({ written, seen, want }) => {
    expect(knownUid('app', 'u1', written, seen)).toBe(want)
  })
})
