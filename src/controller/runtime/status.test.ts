import { expect, test } from 'vitest'
import { nextConditions, sameJson } from './status.ts'

const ready = { type: 'Ready', status: 'True', reason: 'Ready', message: 'well' } as const
const first = { generation: 1, now: new Date('2026-01-01T00:00:00.123Z') }
const later = { generation: 1, now: new Date('2026-01-02T00:00:00Z') }

test('stating the same again is the same status', () => {
  const before = nextConditions([], [ready], first)
  expect(nextConditions(before, [ready], later)).toEqual(before)
  expect(before[0]?.lastTransitionTime).toBe('2026-01-01T00:00:00Z')
})

test.each([
  { change: { reason: 'Other' }, moves: false },
  { change: { message: 'other' }, moves: false },
  { change: { status: 'False' as const }, moves: true },
])('$change moves the time: $moves', ({ change, moves }) => {
  const before = nextConditions([], [ready], first)
  const [after] = nextConditions(before, [{ ...ready, ...change }], { ...later, generation: 2 })
  expect(after).toMatchObject({ ...change, observedGeneration: 2 })
  expect(after?.lastTransitionTime).toBe(moves ? '2026-01-02T00:00:00Z' : '2026-01-01T00:00:00Z')
})

test('a condition that is not stated any more is gone', () => {
  const before = nextConditions([], [ready, { ...ready, type: 'Stalled' }], first)
  expect(nextConditions(before, [ready], later).map((c) => c.type)).toEqual(['Ready'])
})

test('neither the order of keys nor absent values make a difference; the order of lists does', () => {
  expect(sameJson({ a: 1, b: { c: 2, d: [1] } }, { b: { d: [1], c: 2, e: undefined }, a: 1 })).toBe(true)
  expect(sameJson([1, 2], [2, 1])).toBe(false)
  expect(sameJson({ a: null }, {})).toBe(false)
})
