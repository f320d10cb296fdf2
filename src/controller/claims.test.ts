import { expect, test } from 'vitest'
import { ClaimIndex } from './claims.ts'
import type { Resource, ResourceRef } from './source/source.ts'

interface Given {
  readonly second?: number
  readonly refused?: boolean
  readonly going?: boolean
  /** A condition that it has. */
  readonly told?: object
  readonly spec?: object
}

function world(objects: Readonly<Record<string, Given>>) {
  const at = (name: string): Resource => {
    const { second = 10, refused = false, going = false, told, spec = {} } = objects[name] ?? {}
    return {
      kind: 'LdapStaticRole',
      metadata: {
        name,
        namespace: 'demo',
        uid: name,
        generation: 1,
        creationTimestamp: new Date(second * 1000),
        ...(going && { deletionTimestamp: new Date(0) }),
        labels: {},
        annotations: {},
        finalizers: [],
      },
      spec: { engineRef: { name: 'corp' }, username: 'svc', ...spec },
      status: told ? { conditions: [told] } : refused ? { conditions: [{ type: 'Accepted', status: 'False' }] } : {},
    }
  }
  const gone = new Set<string>()
  const index = new ClaimIndex({ get: ({ name }) => (gone.has(name) ? undefined : at(name)) })
  const ref = (name: string): ResourceRef => ({ kind: 'LdapStaticRole', namespace: 'demo', name })
  for (const name of Object.keys(objects)) index.note(ref(name))
  return { index, at, ref, gone }
}

test.each([
  { title: 'alone', others: {}, want: false },
  { title: 'an older one', others: { o: { second: 9 } }, want: true },
  { title: 'a newer one', others: { n: { second: 11 } }, want: false },
  { title: 'of one second, first by uid', others: { a: {} }, want: true },
  { title: 'of one second, later by uid', others: { z: {} }, want: false },
  { title: 'an older one that was refused', others: { o: { second: 9, refused: true } }, want: false },
  { title: 'an older one that is going', others: { o: { second: 9, going: true } }, want: false },
  { title: 'an older one that is suspended', others: { o: { second: 9, spec: { suspend: true } } }, want: false },
  {
    title: 'an older one that has it and is suspended',
    others: { o: { second: 9, spec: { suspend: true }, told: { type: 'Accepted', status: 'True' } } },
    want: true,
  },
  {
    title: 'an older one that met a role of nobody',
    others: { o: { second: 9, told: { type: 'Synced', status: 'False', reason: 'OwnedByApi' } } },
    want: false,
  },
  {
    title: 'an older one that cannot reach the engine now',
    others: { o: { second: 9, told: { type: 'Synced', status: 'False', reason: 'EngineUnavailable' } } },
    want: true,
  },
  { title: 'another account', others: { o: { second: 9, spec: { username: 'else' } } }, want: false },
  { title: 'another engine', others: { o: { second: 9, spec: { engineRef: { name: 'b' } } } }, want: false },
  { title: 'in capitals', others: { o: { second: 9, spec: { username: 'SVC' } } }, want: true },
  { title: 'one role name', others: { o: { second: 9, spec: { username: 'else', roleName: 'demo/M' } } }, want: true },
  { title: 'one by DN, one by name', others: { o: { second: 9, spec: { dn: 'cn=svc' } } }, want: false },
])('$title: stands behind an older one: $want', ({ others, want }) => {
  const { index, at } = world({ m: {}, ...others })
  expect(index.isBehindAnOlder(at('m'))).toBe(want)
})

test('rivals are the others; those that went are forgotten', () => {
  const { index, at, ref, gone } = world({ m: {}, a: {}, b: { spec: { username: 'else' } } })
  expect(index.rivals(at('m'))).toEqual([ref('a')])
  gone.add('a')
  index.note(ref('a'))
  expect(index.rivals(at('m'))).toEqual([])
})
