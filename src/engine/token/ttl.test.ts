import { expect, test } from 'vitest'
import { decideTtl, type TtlInputs } from './ttl.ts'

const hour = 3_600_000
const system = { mountDefaultMs: 0, mountMaxMs: 0, systemMaxMs: 768 * hour, ageMs: 0 }

test.each<{ why: string; given: Partial<TtlInputs>; hours: number; warning?: string }>([
  { why: 'nothing said: the system default', given: {}, hours: 768 },
  { why: 'the mount default', given: { mountDefaultMs: 2 * hour }, hours: 2 },
  { why: 'the role before the mount', given: { roleTtlMs: hour, mountDefaultMs: 2 * hour }, hours: 1 },
  { why: 'what was asked before the role', given: { requestedMs: 3 * hour, roleTtlMs: hour }, hours: 3 },
  { why: 'the role max caps', given: { requestedMs: 3 * hour, roleMaxMs: 2 * hour }, hours: 2, warning: '10800s' },
  { why: 'the explicit max caps', given: { roleTtlMs: 3 * hour, explicitMaxMs: hour }, hours: 1, warning: '3600s' },
  { why: 'the mount max caps', given: { requestedMs: 9 * hour, mountMaxMs: 4 * hour }, hours: 4, warning: 'capped' },
  { why: 'the system max caps', given: { requestedMs: 999 * hour }, hours: 768, warning: 'capped' },
  {
    why: 'the smallest max',
    given: { roleMaxMs: 5 * hour, mountMaxMs: 4 * hour, explicitMaxMs: 6 * hour },
    hours: 4,
    warning: 'capped',
  },
  {
    why: 'a mount max above the system',
    given: { mountMaxMs: 900 * hour, requestedMs: 800 * hour },
    hours: 768,
    warning: 'capped',
  },
  { why: 'exactly the max is no excess', given: { requestedMs: 2 * hour, roleMaxMs: 2 * hour }, hours: 2 },
  { why: 'a period', given: { periodMs: hour, roleTtlMs: 5 * hour, roleMaxMs: hour / 2 }, hours: 1 },
  {
    why: 'a period over the mount max',
    given: { periodMs: 5 * hour, mountMaxMs: 2 * hour },
    hours: 2,
    warning: 'period',
  },
  {
    why: 'a period over the explicit max',
    given: { periodMs: 5 * hour, explicitMaxMs: 2 * hour },
    hours: 2,
    warning: 'capped',
  },
  { why: 'renewal within', given: { roleTtlMs: hour, roleMaxMs: 4 * hour, ageMs: 2 * hour }, hours: 1 },
  {
    why: 'renewal near the end',
    given: { roleTtlMs: hour, roleMaxMs: 4 * hour, ageMs: 3.5 * hour },
    hours: 0.5,
    warning: 'capped',
  },
  { why: 'an old periodic token', given: { periodMs: hour, ageMs: 9999 * hour }, hours: 1 },
  {
    why: 'a periodic token near its explicit max',
    given: { periodMs: 2 * hour, explicitMaxMs: 10 * hour, ageMs: 9 * hour },
    hours: 1,
    warning: 'capped',
  },
])('$why', ({ given, hours, warning }) => {
  const { ttlMs, warnings } = decideTtl({ ...system, ...given })
  expect(ttlMs).toBe(hours * hour)
  expect(warnings).toEqual(warning ? [expect.stringContaining(warning)] : [])
})

test.each<{ why: string; given: Partial<TtlInputs> }>([
  { why: 'at the max', given: { roleMaxMs: 4 * hour, ageMs: 4 * hour } },
  { why: 'past the max', given: { mountMaxMs: 4 * hour, ageMs: 5 * hour } },
  { why: 'past the explicit max of a periodic token', given: { periodMs: hour, explicitMaxMs: hour, ageMs: 2 * hour } },
])('refuses $why', ({ given }) => {
  expect(() => decideTtl({ ...system, ...given })).toThrow('past the max TTL, cannot renew')
})
