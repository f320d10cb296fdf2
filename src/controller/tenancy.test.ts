import { expect, test } from 'vitest'
import { admits, selects, tenancyTable } from './tenancy.ts'

test.each([
  [undefined, { a: 'b' }, false],
  [{}, { a: 'b' }, false],
  [{ matchLabels: { a: 'b' } }, { a: 'b', c: 'd' }, true],
  [{ matchLabels: { a: 'b', c: 'x' } }, { a: 'b', c: 'd' }, false],
  [{ matchExpressions: [{ key: 'a', operator: 'In' as const, values: ['b', 'c'] }] }, { a: 'b' }, true],
  [{ matchExpressions: [{ key: 'a', operator: 'In' as const, values: ['c'] }] }, { a: 'b' }, false],
  [{ matchExpressions: [{ key: 'a', operator: 'NotIn' as const, values: ['c'] }] }, {}, true],
  [{ matchExpressions: [{ key: 'a', operator: 'NotIn' as const, values: ['b'] }] }, { a: 'b' }, false],
  [{ matchExpressions: [{ key: 'a', operator: 'Exists' as const }] }, {}, false],
  [{ matchExpressions: [{ key: 'a', operator: 'DoesNotExist' as const }] }, {}, true],
  // What the API server refuses, and a requirement that is none: nobody.
  [{ matchExpressions: [{ key: 'a', operator: 'NotIn' as const, values: [] }] }, {}, false],
  [{ matchExpressions: [{ key: 'a', operator: 'NotIn' as const }] }, { a: 'b' }, false],
  [{ matchExpressions: [{ key: 'a', operator: 'In' as const }] }, { a: 'b' }, false],
  [{ matchExpressions: [{ key: 'a', operator: 'Exists' as const, values: ['b'] }] }, { a: 'b' }, false],
  [{ matchExpressions: [{ key: 'a', operator: 'DoesNotExist' as const, values: ['b'] }] }, {}, false],
  [{ matchLabels: { x: 'y' }, matchExpressions: [{ key: 'a', operator: 'Exists' as const }] }, { a: '' }, false],
])('selector %j on %j: %s', (selector, labels, want) => {
  expect(selects(selector, labels)).toBe(want)
})

const entry = { namespaces: { names: ['a'] }, kinds: ['StaticRole' as const], allowedDNs: ['dc=x'] }

test('names and selected namespaces together, in the spelling of the engine', () => {
  const spec = {
    tenancy: [
      {
        ...entry,
        namespaces: { names: ['a'], selector: { matchLabels: { team: 't' } } },
        deniedDNs: ['dc=d'],
        minRotationPeriod: 3_600_000,
        maxRoles: 5,
      },
    ],
  }
  const labels = new Map([
    ['b', { team: 't' }],
    ['c', { team: 'u' }],
  ])
  expect(tenancyTable(spec, labels)).toEqual({
    entries: [
      {
        principals: ['kubernetes:a', 'kubernetes:b'],
        kinds: ['StaticRole'],
        allowed_dns: ['dc=x'],
        allowed_group_dns: [],
        denied_dns: ['dc=d'],
        min_rotation_period: 3600,
        max_ttl: 0,
        max_roles: 5,
        free_role_names: false,
      },
    ],
  })
})

test('nobody without an entry, no entry without anybody, long lists in parts', () => {
  expect(tenancyTable({}, new Map([['a', {}]]))).toEqual({ entries: [] })
  const nobody = { ...entry, namespaces: { selector: { matchLabels: { a: 'b' } } } }
  expect(tenancyTable({ tenancy: [nobody] }, new Map([['a', {}]]))).toEqual({ entries: [] })
  const many = { ...entry, namespaces: { names: Array.from({ length: 1500 }, (_, n) => `n${n}`) } }
  const { entries } = tenancyTable({ tenancy: [many] }, new Map())
  expect(entries.map(({ principals }) => (Array.isArray(principals) ? principals.length : 0))).toEqual([1000, 500])
})

test.each([
  [[], false],
  [[entry], true],
  [[{ ...entry, kinds: ['LibrarySet' as const] }], false],
  [[{ ...entry, namespaces: { names: ['b'] } }], false],
  [[{ ...entry, namespaces: { selector: { matchLabels: { team: 't' } } } }], true],
])('whether a namespace may have static roles at all: %#', (tenancy, want) => {
  expect(admits({ tenancy }, 'StaticRole', 'a', { team: 't' })).toBe(want)
})
