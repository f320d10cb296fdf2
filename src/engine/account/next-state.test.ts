import { describe, expect, test } from 'vitest'
import { systemRandom } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'
import { type AccountState, accountDue } from './account.ts'
import { abandoned, begun, dropped, type Failure, failed, promoted, unsent } from './next-state.ts'

const now = new Date('2026-03-01T12:00:00Z')
const after = (ms: number) => new Date(now.getTime() + ms)
const HOUR = 3_600_000
const settled: AccountState = { credentialVersion: 1, confirmed: { password: new Secret('old'), since: now } }
const turning = begun(settled, new Secret('new'), { now, heldUntil: after(1_000), holder: 'me' })
const rejected = { class: 'rejected', message: 'too weak', isDirectoryWide: false }

/** The retry of each of so many failures in a row, in milliseconds after the one before. */
function waits(count: number, failure: Partial<Failure>, start = settled): number[] {
  let account = start
  let at = now
  return Array.from({ length: count }, () => {
    const next = failed(account, { ...rejected, ...failure }, at, systemRandom)
    const waitMs = next.retryAt.getTime() - at.getTime()
    account = next.account
    at = next.retryAt
    return waitMs
  })
}

describe('a failure', () => {
  test('is tried again after 10 s, then later and later, at most an hour and its jitter', () => {
    const all = waits(14, {})
    expect(all[0]).toBeGreaterThanOrEqual(8_000)
    expect(all[0]).toBeLessThanOrEqual(12_000)
    expect(all[4]).toBeGreaterThan(100_000)
    expect(all.at(-1)).toBeGreaterThanOrEqual(0.8 * HOUR)
    expect(Math.max(...all)).toBeLessThanOrEqual(1.2 * HOUR)
  })

  test('of the whole directory is tried again soon, however long it lasts, and told once', () => {
    const outage = { class: 'unavailable', isDirectoryWide: true }
    expect(Math.max(...waits(400, outage))).toBeLessThanOrEqual(12_000)
    const first = failed(settled, { ...rejected, ...outage }, now, systemRandom)
    expect(first.isNews).toBe(true)
    const second = failed(first.account, { ...rejected, ...outage }, first.retryAt, systemRandom)
    expect(second).toMatchObject({ isNews: false, account: { failure: { count: 1 } } })
    expect(failed(second.account, rejected, second.retryAt, systemRandom).account.failure?.count).toBe(2)
  })

  test('with a password in the air is looked into within seconds, of one account ever later', () => {
    expect(Math.max(...waits(400, { class: 'unavailable', isDirectoryWide: true }, turning))).toBeLessThanOrEqual(1_200)
    const all = waits(14, { class: 'unknown-outcome' }, turning)
    expect(all[0]).toBeLessThanOrEqual(1_200)
    expect(all.at(-1)).toBeGreaterThanOrEqual(0.8 * HOUR)
  })

  test('repeated before its retry is no news and puts nothing off', () => {
    const first = failed(settled, rejected, now, systemRandom)
    const second = failed(first.account, rejected, after(1_000), systemRandom)
    expect(second).toMatchObject({ isNews: false, retryAt: first.retryAt, account: { failure: { count: 1 } } })
  })

  test('is news again at the next step and when its class changes', () => {
    const first = failed(settled, rejected, now, systemRandom)
    expect(failed(first.account, rejected, first.retryAt, systemRandom).isNews).toBe(true)
    expect(failed(first.account, { ...rejected, class: 'absent' }, after(1), systemRandom).isNews).toBe(true)
  })

  test('waits at least as long as it is told to', () => {
    const notBefore = after(2 * HOUR)
    expect(failed(settled, { ...rejected, notBefore }, now, systemRandom).retryAt).toEqual(notBefore)
  })
})

describe('a promote', () => {
  test('confirms, remembers the old one, and forgets everything that was open', () => {
    const failing = failed({ ...turning, abandoned: new Secret('x'), driftedSince: now }, rejected, now, systemRandom)
    const next = promoted(failing.account, new Secret('new'), { now: after(5), version: 7, dn: 'uid=a' })
    expect(Object.keys(next).sort()).toEqual(['confirmed', 'credentialVersion', 'dn', 'previous'])
    expect(next.confirmed?.password.reveal()).toBe('new')
    expect(next.confirmed).toMatchObject({ since: after(5), basedOn: 7 })
    expect(next.previous?.reveal()).toBe('old')
    expect(next.credentialVersion).toBe(2)
  })

  test('of a first password has no old one', () => {
    expect(promoted({ credentialVersion: 0 }, new Secret('new'), { now, version: 7 }).previous).toBeUndefined()
  })
})

test.each([
  ['settled', settled, 'rotation/m'],
  ['in the air', turning, 'turning/m'],
  ['told to nobody', unsent(turning), 'rotation/m'],
  ['dropped', dropped(turning), 'rotation/m'],
  ['abandoned', abandoned(turning), 'rotation/m'],
])('an account that is %s is due in the queue %s', (_, account, queue) => {
  expect(accountDue('m', account, now)).toEqual({ queue, at: now })
})

test('an abandoned password stays on record', () => {
  expect(abandoned(turning)).toMatchObject({ confirmed: settled.confirmed })
  expect(abandoned(turning).abandoned?.reveal()).toBe('new')
})
