import { expect, test } from 'vitest'
import { TestClock } from '../../../test/support/test-clock.ts'
import type { Clock } from '../../lib/clock.ts'
import { createLogger } from '../../lib/log.ts'
import { systemRandom } from '../../lib/random.ts'
import { KubeError } from './kube-error.ts'
import type { KubeObject } from './kube-object.ts'
import { LeaderLease, type LeaseDeps, microTime } from './lease.ts'

const log = createLogger({ level: 'silent' })

/** The one Lease of an API server: versions, and refusals of what is not up to date. */
class LeaseTable {
  lease: KubeObject | undefined
  #version = 0
  writes = 0

  /** One process's way to the table; it can be cut. */
  connect(): LeaseDeps['client'] & { cut: boolean } {
    const put = async (body: object) => {
      const { metadata, ...rest } = body as KubeObject // the Lease sends whole objects
      this.writes += 1
      this.lease = { ...rest, metadata: { ...metadata, resourceVersion: String(++this.#version) } }
      return this.lease
    }
    const connection = {
      cut: false,
      get: async () => {
        if (connection.cut) throw new KubeError('get', { status: 0 })
        return this.lease
      },
      create: async (_: unknown, __: unknown, body: object) => {
        if (connection.cut) throw new KubeError('create', { status: 0 })
        if (this.lease) throw new KubeError('create', { status: 409 })
        return put(body)
      },
      replace: async (_: unknown, __: unknown, body: object) => {
        if (connection.cut) throw new KubeError('replace', { status: 0 })
        const { metadata } = body as KubeObject // as above
        if (metadata.resourceVersion !== this.lease?.metadata.resourceVersion)
          throw new KubeError('put', { status: 409 })
        return put(body)
      },
    }
    return connection
  }

  /** Without the part that tells one life of a process from another. */
  get holder(): unknown {
    const spec = this.lease?.['spec'] as { holderIdentity: string } | undefined // written by the Lease
    return spec && named(spec.holderIdentity)
  }
}

const named = (identity: string | undefined) => identity?.replace(/_[0-9a-f]{8}$/, '')

function contender(
  table: LeaseTable,
  identity: string,
  clock: Clock,
  work: 'until told' | 'slow to stop' = 'until told',
) {
  const client = table.connect()
  const lease = new LeaderLease({ namespace: 'ns', name: 'l', identity }, { client, clock, random: systemRandom, log })
  const stop = new AbortController()
  const state = { leading: false, terms: 0, lostAs: undefined as unknown }
  const done = lease.run(async (signal) => {
    state.leading = true
    state.terms += 1
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
    state.lostAs = signal.reason
    if (work === 'slow to stop') await clock.sleep(20_000)
    state.leading = false
  }, stop.signal)
  return { client, lease, stop, state, done }
}

test('one leads, the others wait as long as it renews', async () => {
  const [table, clock] = [new LeaseTable(), new TestClock()]
  const a = contender(table, 'a', clock)
  await clock.advance(100)
  const b = contender(table, 'b', clock)
  await clock.advance(300_000)
  expect([a.state.leading, b.state.leading]).toEqual([true, false])
  expect([a.lease.isLeader(), b.lease.isLeader()]).toEqual([true, false])
  expect(a.state.terms).toBe(1)
  expect(named(b.lease.holder)).toBe('a')
})

test('a leader that is cut off stops 10 s after its last renewal, before the other begins at 15 s', async () => {
  const [table, clock] = [new LeaseTable(), new TestClock()]
  const a = contender(table, 'a', clock)
  await clock.advance(10_000)
  const b = contender(table, 'b', clock)
  await clock.advance(10_000)
  a.client.cut = true
  let stoppedMs = 0
  let begunMs = 0
  for (let ms = 0; ms < 30_000 && !begunMs; ms += 100) {
    await clock.advance(100)
    expect(a.lease.isLeader() && b.lease.isLeader()).toBe(false)
    if (!a.state.leading && !stoppedMs) stoppedMs = ms
    if (b.state.leading) begunMs = ms
  }
  expect(stoppedMs).toBeGreaterThan(7_000)
  expect(stoppedMs).toBeLessThanOrEqual(10_000)
  expect(begunMs).toBeGreaterThanOrEqual(stoppedMs + 3_000)
  expect(begunMs).toBeLessThan(20_000)
  expect(String(a.state.lostAs)).toContain('leadership was lost')
})

test('short trouble costs nobody the lead', async () => {
  const [table, clock] = [new LeaseTable(), new TestClock()]
  const a = contender(table, 'a', clock)
  await clock.advance(10_000)
  a.client.cut = true
  await clock.advance(6_000)
  a.client.cut = false
  await clock.advance(60_000)
  expect(a.state).toMatchObject({ leading: true, terms: 1 })
})

test('a process that was frozen knows at once that it may not write', async () => {
  const table = new LeaseTable()
  const [frozen, clock] = [new TestClock(), new TestClock()]
  let frozenMs = 0
  const waking: Clock = {
    now: () => frozen.now(),
    monotonicMs: () => frozen.monotonicMs() + frozenMs,
    sleep: (ms, signal) => frozen.sleep(ms, signal),
  }
  const a = contender(table, 'a', waking)
  await frozen.advance(5_000)
  const b = contender(table, 'b', clock)
  // Only b's time passes: a's process stands still, and none of its timers runs before it is asked.
  await clock.advance(30_000)
  frozenMs = 30_000
  expect(b.state.leading).toBe(true)
  expect(a.lease.isLeader()).toBe(false)
  await frozen.advance(3_000)
  expect(a.state.leading).toBe(false)
  expect(table.holder).toBe('b')
})

test('clocks that differ by hours do not matter', async () => {
  const table = new LeaseTable()
  const clock = new TestClock()
  const ahead: Clock = {
    now: () => new Date(clock.now().getTime() + 5 * 3_600_000),
    monotonicMs: () => clock.monotonicMs() + 1e6,
    sleep: (ms, signal) => clock.sleep(ms, signal),
  }
  const a = contender(table, 'a', clock)
  await clock.advance(1_000)
  const b = contender(table, 'b', ahead)
  await clock.advance(120_000)
  expect([a.state.leading, b.state.leading]).toEqual([true, false])
})

test('a stop gives the Lease free only after the work has ended, and keeps it until then', async () => {
  const [table, clock] = [new LeaseTable(), new TestClock()]
  const a = contender(table, 'a', clock, 'slow to stop')
  await clock.advance(1_000)
  const b = contender(table, 'b', clock)
  await clock.advance(5_000)
  a.stop.abort()
  await clock.advance(19_999)
  expect(a.lease.isLeader()).toBe(true)
  expect([a.state.leading, b.state.leading]).toEqual([true, false])
  await clock.advance(1)
  await a.done
  expect(table.holder).toBe('')
  await clock.advance(1_250)
  expect(b.state.leading).toBe(true)
})

test('a renewal whose answer got lost is not taken for somebody else', async () => {
  const [table, clock] = [new LeaseTable(), new TestClock()]
  const a = contender(table, 'a', clock)
  await clock.advance(3_000)
  // Our own write arrived; only we do not know its version.
  if (table.lease) table.lease = { ...table.lease, metadata: { ...table.lease.metadata, resourceVersion: '999' } }
  await clock.advance(30_000)
  expect(a.state).toMatchObject({ leading: true, terms: 1 })
})

test('a process that was killed and started again under its name waits as for any other, and renews nothing of its life before', async () => {
  const [table, clock] = [new LeaseTable(), new TestClock()]
  const before = contender(table, 'pod_uid', clock)
  await clock.advance(3_000)
  // Killed: nothing of it runs any more, nor does it give the Lease free.
  before.client.cut = true
  const after = contender(table, 'pod_uid', clock)
  await clock.advance(10_000)
  expect([before.lease.isLeader() && after.lease.isLeader(), after.state.leading]).toEqual([false, false])
  await clock.advance(10_000)
  expect(after.state.leading).toBe(true)
  expect(after.lease.holder).not.toBe(before.lease.holder)
  // Back from the dead, it finds somebody else's Lease.
  before.client.cut = false
  await clock.advance(60_000)
  expect([before.state.leading, after.state.leading]).toEqual([false, true])
})

test('the times in the record have six digits', () => {
  expect(microTime(new Date('2026-01-02T03:04:05.678Z'))).toBe('2026-01-02T03:04:05.678000Z')
})
