import { expect, test } from 'vitest'
import { TestClock } from '../../../test/support/test-clock.ts'
import type { Random } from '../../lib/random.ts'
import { systemRandom } from '../../lib/random.ts'
import { WorkQueue } from './queue.ts'

const never = new AbortController().signal
const HOUR = 3_600_000
/** The middle of every range: no jitter. */
const even: Random = { ...systemRandom, integer: (limit) => Math.floor(limit / 2) }

function queueOn(clock = new TestClock()) {
  const stop = new AbortController()
  const queue = new WorkQueue({ clock, random: even })
  const running = queue.run(stop.signal)
  return { clock, queue, stop, running }
}

/** Takes and finishes all that waits now, in order. */
async function drain(queue: WorkQueue): Promise<string[]> {
  const taken: string[] = []
  while (queue.depth > 0) {
    const key = await queue.take(never)
    if (key === undefined) break
    taken.push(key)
    queue.done(key)
  }
  return taken
}

test('a key waits once, however often it is added', async () => {
  const { queue } = queueOn()
  for (const key of ['ns/a', 'ns/b', 'ns/a', 'ns/a']) queue.add(key)
  expect(await drain(queue)).toEqual(['ns/a', 'ns/b'])
})

test('a key that is added while worked on comes again afterwards, and to nobody meanwhile', async () => {
  const { queue } = queueOn()
  queue.add('ns/a')
  expect(await queue.take(never)).toBe('ns/a')
  queue.add('ns/a')
  queue.add('ns/a')
  expect(queue.depth).toBe(0)
  queue.done('ns/a')
  expect(await drain(queue)).toEqual(['ns/a'])
})

test('what users changed goes before what is due, and that before what is only looked at again', async () => {
  const { queue } = queueOn()
  queue.add('ns/resync', 3)
  queue.add('ns/due', 2)
  queue.add('ns/user', 1)
  queue.add('ns/both', 3)
  queue.add('ns/both', 1)
  queue.add('ns/user', 3)
  expect(await drain(queue)).toEqual(['ns/user', 'ns/both', 'ns/due', 'ns/resync'])
})

test('a key keeps its priority when it is added again while worked on', async () => {
  const { queue } = queueOn()
  queue.add('ns/a')
  await queue.take(never)
  queue.add('ns/a', 3)
  queue.add('ns/a', 1)
  queue.add('ns/a', 2)
  queue.add('ns/b', 2)
  queue.done('ns/a')
  expect(await drain(queue)).toEqual(['ns/a', 'ns/b'])
})

test('namespaces take turns', async () => {
  const { queue } = queueOn()
  for (const key of ['big/1', 'big/2', 'big/3', 'small/1', 'cluster-wide', 'small/2']) queue.add(key)
  expect(await drain(queue)).toEqual(['big/1', 'small/1', 'cluster-wide', 'big/2', 'small/2', 'big/3'])
})

test('waiting workers are served in the order they came; one that gives up is not', async () => {
  const { queue } = queueOn()
  const gaveUp = new AbortController()
  const first = queue.take(gaveUp.signal)
  const second = queue.take(never)
  gaveUp.abort()
  expect(await first).toBeUndefined()
  queue.add('ns/a')
  expect(await second).toBe('ns/a')
  expect(await queue.take(gaveUp.signal)).toBeUndefined()
})

test('delays: the sooner one holds, and taking the key forgets it', async () => {
  const { clock, queue, stop, running } = queueOn()
  queue.addAfter('ns/a', 60_000)
  queue.addAfter('ns/a', 5_000)
  queue.addAfter('ns/a', 30_000)
  await clock.advance(4_999)
  expect(queue.depth).toBe(0)
  await clock.advance(1)
  expect(queue.depth).toBe(1)
  queue.addAfter('ns/a', 1_000)
  expect(await drain(queue)).toEqual(['ns/a'])
  await clock.advance(HOUR)
  expect(queue.depth).toBe(0)
  stop.abort()
  await running
})

test('an instant farther away than a timer of Node can sleep is kept', async () => {
  const { clock, queue } = queueOn()
  queue.addAt('ns/far', new Date(clock.now().getTime() + 30 * 24 * HOUR))
  await clock.advance(24 * HOUR)
  expect(queue.depth).toBe(0)
  expect(queue.delayed).toBe(1)
  queue.addAt('ns/past', new Date(0))
  await clock.advance(1)
  expect(await drain(queue)).toEqual(['ns/past'])
})

test('an instant that passed while the machine slept is noticed within a minute', async () => {
  let sleptMs = 0
  const clock = new TestClock()
  const suspended = Object.assign(Object.create(clock) as TestClock, {
    now: () => new Date(clock.now().getTime() + sleptMs),
    sleep: (ms: number, signal?: AbortSignal) => clock.sleep(ms, signal),
    monotonicMs: () => clock.monotonicMs(),
  })
  const queue = new WorkQueue({ clock: suspended, random: even })
  void queue.run(never)
  queue.addAt('ns/a', new Date(clock.now().getTime() + 8 * HOUR))
  queue.addAfter('ns/b', 8 * HOUR)
  await clock.advance(1_000)
  sleptMs = 9 * HOUR
  await clock.advance(60_000)
  expect(await drain(queue)).toEqual(['ns/a'])
})

test('failures wait 1 s, doubling to 5 min, and start over after a success', () => {
  const { queue } = queueOn()
  const waits = Array.from({ length: 11 }, () => queue.retry('ns/a') / 1_000)
  expect(waits).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
  queue.forget('ns/a')
  expect(queue.retry('ns/a')).toBe(1_000)
})

test('the wait after a failure is spread by half of itself', () => {
  const queue = new WorkQueue({ clock: new TestClock(), random: systemRandom })
  const waits = Array.from({ length: 200 }, (_, i) => queue.retry(`ns/${i}`))
  expect(Math.min(...waits)).toBeGreaterThanOrEqual(500)
  expect(Math.max(...waits)).toBeLessThanOrEqual(1_500)
  expect(new Set(waits).size).toBeGreaterThan(50)
})
