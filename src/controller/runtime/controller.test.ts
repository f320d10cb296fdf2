import { expect, test } from 'vitest'
import { TestClock } from '../../../test/support/test-clock.ts'
import { invalid, unavailable } from '../../lib/errors.ts'
import { createLogger } from '../../lib/log.ts'
import { systemRandom } from '../../lib/random.ts'
import { type ReconcileResult, runController } from './controller.ts'
import { WorkQueue } from './queue.ts'

const log = createLogger({ level: 'silent' })

function controllerWith(
  reconcile: (key: string, signal: AbortSignal) => Promise<ReconcileResult | undefined>,
  { synced = Promise.resolve(), workers = 4 }: { synced?: Promise<void>; workers?: number } = {},
) {
  const clock = new TestClock()
  const queue = new WorkQueue({ clock, random: systemRandom })
  const stop = new AbortController()
  const errors: unknown[] = []
  const onOutcome = ({ error }: { error?: unknown }) => error && errors.push(error)
  const running = runController(
    { name: 'test', queue, synced, reconcile, workers, onOutcome },
    { clock, log },
    stop.signal,
  )
  return { clock, queue, stop, running, errors }
}

test('nothing is decided before everything is known', async () => {
  const synced = Promise.withResolvers<void>()
  const done: string[] = []
  const { clock, queue, stop, running } = controllerWith(async (key) => void done.push(key), { synced: synced.promise })
  queue.add('ns/a')
  await clock.advance(60_000)
  expect(done).toEqual([])
  synced.resolve()
  await clock.advance(1)
  expect(done).toEqual(['ns/a'])
  stop.abort()
  await running
})

test('what fails is tried again, less and less often, and then as fresh', async () => {
  const atMs: number[] = []
  const { clock, queue, errors } = controllerWith(async () => {
    atMs.push(clock.monotonicMs())
    if (atMs.length < 4) throw unavailable('not now')
    return undefined
  })
  queue.add('ns/a')
  await clock.advance(60_000)
  expect(atMs).toHaveLength(4)
  const waits = atMs.slice(1).map((at, i) => at - (atMs[i] ?? 0))
  for (const [i, wait] of waits.entries()) {
    expect(wait).toBeGreaterThanOrEqual(500 * 2 ** i)
    expect(wait).toBeLessThanOrEqual(1_500 * 2 ** i)
  }
  expect(errors).toHaveLength(3)
})

test('what trying again cannot help is not tried hotly', async () => {
  let runs = 0
  const { clock, queue } = controllerWith(async () => {
    runs += 1
    throw invalid('no such account')
  })
  queue.add('ns/a')
  await clock.advance(299_000)
  expect(runs).toBe(1)
  await clock.advance(1_000)
  expect(runs).toBe(2)
})

test('a key is looked at again when its reconcile said so', async () => {
  let runs = 0
  const { clock, queue } = controllerWith(async () => {
    runs += 1
    return { lookAgainAt: new Date(clock.now().getTime() + 3_600_000) }
  })
  queue.add('ns/a')
  await clock.advance(3_599_000)
  expect(runs).toBe(1)
  await clock.advance(1_000)
  expect(runs).toBe(2)
})

test('one key that hangs does not keep the others waiting, and no key has two workers', async () => {
  const active = new Map<string, number>()
  const done: string[] = []
  const release = Promise.withResolvers<void>()
  const { clock, queue } = controllerWith(
    async (key) => {
      active.set(key, (active.get(key) ?? 0) + 1)
      expect(active.get(key)).toBe(1)
      if (key === 'ns/hangs') await release.promise
      active.set(key, 0)
      done.push(key)
      return undefined
    },
    { workers: 2 },
  )
  for (const key of ['ns/hangs', 'ns/a', 'ns/b', 'ns/c']) queue.add(key)
  await clock.advance(1)
  queue.add('ns/hangs')
  await clock.advance(1)
  expect(done).toEqual(['ns/a', 'ns/b', 'ns/c'])
  release.resolve()
  await clock.advance(1)
  expect(done).toEqual(['ns/a', 'ns/b', 'ns/c', 'ns/hangs', 'ns/hangs'])
})

test('a stop waits for the work under way, and breaks it off after 20 s', async () => {
  const { clock, queue, stop, running } = controllerWith(
    (_, signal) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true })),
  )
  let ended = false
  void running.then(() => {
    ended = true
  })
  queue.add('ns/a')
  queue.add('ns/b')
  await clock.advance(1)
  stop.abort()
  await clock.advance(19_999)
  expect(ended).toBe(false)
  await clock.advance(2)
  expect(ended).toBe(true)
})

test('a stop does not wait for ever for work that does not let itself be broken off', async () => {
  const { clock, queue, stop, running, errors } = controllerWith(() => new Promise(() => undefined))
  let ended = false
  void running.then(() => {
    ended = true
  })
  queue.add('ns/a')
  await clock.advance(1)
  stop.abort()
  await clock.advance(20_000)
  expect(ended).toBe(false)
  await clock.advance(1_001)
  expect(ended).toBe(true)
  expect(errors).toEqual([])
})
