import { describe, expect, test } from 'vitest'
import { memoryStore } from '../../../test/support/memory-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import { createLogger } from '../../lib/log.ts'
import { systemRandom } from '../../lib/random.ts'
import { DirectoryError, type DirectoryErrorClass } from '../directory/errors.ts'
import { createDirectoryGuard, type DirectoryGuard, GuardClosed } from './guard.ts'

const MINUTE = 60_000

async function setUp() {
  const clock = new TestClock()
  const store = await memoryStore(clock)
  const start = () =>
    createDirectoryGuard({ store, clock, random: systemRandom, log: createLogger({ level: 'silent' }) })
  return { clock, start, guard: start() }
}

const works = async () => 'answer'
const fails = (errorClass: DirectoryErrorClass, resultCode?: number) => async () => {
  throw new DirectoryError(errorClass, 'for this test', resultCode === undefined ? {} : { resultCode })
}

/** What came of a piece of work: its answer, the class of its failure, or that it was not run. */
async function outcome(guard: DirectoryGuard, work: () => Promise<string>, mount = 'm1'): Promise<string> {
  return guard.run(mount, work).catch((error) => (error instanceof GuardClosed ? `not run: ${error.why}` : error.class))
}

describe('our own bind refused', () => {
  test('lets one probe through in 5 minutes, whoever asks', async () => {
    const { clock, guard } = await setUp()
    let binds = 0
    const bind = async () => {
      binds += 1
      return fails('bind-refused')()
    }
    expect(await outcome(guard, bind)).toBe('bind-refused')
    for (let minute = 0; minute < 30; minute++) {
      for (let i = 0; i < 3; i++) await outcome(guard, bind)
      await clock.advance(MINUTE)
    }
    expect(binds).toBe(6)
  })

  test('is remembered over a restart and counts for other servers too', async () => {
    const { clock, guard, start } = await setUp()
    await outcome(guard, fails('bind-refused'))
    const restarted = start()
    expect(await outcome(restarted, works)).toBe('not run: bind-refused')
    await clock.advance(5 * MINUTE)
    const both = await Promise.all([outcome(restarted, fails('bind-refused')), outcome(guard, fails('bind-refused'))])
    expect(both.sort()).toEqual(['bind-refused', 'not run: bind-refused'])
  })

  test('is over when a probe works', async () => {
    const { clock, guard } = await setUp()
    await outcome(guard, fails('bind-refused'))
    await clock.advance(5 * MINUTE)
    expect(await outcome(guard, works)).toBe('answer')
    expect(await outcome(guard, works)).toBe('answer')
    expect(await guard.state('m1')).toEqual({ isOpen: true })
  })

  test('is over when the configuration is written', async () => {
    const { guard, start } = await setUp()
    await outcome(guard, fails('bind-refused'))
    expect(await guard.state('m1')).toMatchObject({ isOpen: false, why: 'bind-refused' })
    await guard.reset('m1')
    expect(await outcome(start(), works)).toBe('answer')
  })

  test('of one mount does not close another', async () => {
    const { guard } = await setUp()
    await outcome(guard, fails('bind-refused'))
    expect(await outcome(guard, works, 'm2')).toBe('answer')
  })

  test('is presented once by work that begins at one moment', async () => {
    const { guard } = await setUp()
    let binds = 0
    const all = await Promise.all(
      Array.from({ length: 8 }, () =>
        guard
          .run('m1', (connect) =>
            connect(async () => {
              binds += 1
              return fails('bind-refused')()
            }),
          )
          .catch((error) => (error instanceof GuardClosed ? 'not run' : error.class)),
      ),
    )
    expect(binds).toBe(1)
    expect(all.filter((one) => one === 'not run')).toHaveLength(7)
  })
})

describe('a directory that cannot be reached', () => {
  test('is probed from 1 second to 1 minute apart, one at a time', async () => {
    const { clock, guard } = await setUp()
    const waitsMs: number[] = []
    for (let failures = 0; failures < 10; failures++) {
      expect(await outcome(guard, fails('unavailable'))).toBe('unavailable')
      expect(await outcome(guard, works)).toBe('not run: unavailable')
      const state = await guard.state('m1')
      if (state.isOpen) throw new Error('the guard should be closed')
      waitsMs.push(state.probeAt.getTime() - clock.now().getTime())
      await clock.advance(waitsMs.at(-1) ?? 0)
    }
    expect(waitsMs[0]).toBeGreaterThanOrEqual(800)
    expect(waitsMs[0]).toBeLessThanOrEqual(1_200)
    expect(waitsMs[3]).toBeGreaterThan(waitsMs[1] ?? 0)
    expect(Math.max(...waitsMs)).toBeLessThanOrEqual(72_000)
    const gate = Promise.withResolvers<string>()
    const probe = outcome(guard, () => gate.promise)
    expect(await outcome(guard, works)).toBe('not run: unavailable')
    gate.resolve('back')
    expect(await probe).toBe('back')
    expect(await outcome(guard, works)).toBe('answer')
  })

  test('is noticed once by work that fails at one moment', async () => {
    const { clock, guard } = await setUp()
    await Promise.all(Array.from({ length: 8 }, () => outcome(guard, fails('unavailable'))))
    const state = await guard.state('m1')
    expect(!state.isOpen && state.probeAt.getTime() - clock.now().getTime()).toBeLessThanOrEqual(1_200)
  })
})

describe('trouble with one account', () => {
  test.each([
    ['rejected', 19],
    ['refused', 50],
    ['absent', 32],
    ['unknown-outcome', undefined],
    ['unavailable', 80],
  ] as const)('%s (%s) does not close the guard', async (errorClass, code) => {
    const { guard } = await setUp()
    expect(await outcome(guard, fails(errorClass, code))).toBe(errorClass)
    expect(await outcome(guard, works)).toBe('answer')
  })

  test('that hangs once it is connected does not hold up another', async () => {
    const { guard } = await setUp()
    const never = Promise.withResolvers<string>()
    const hanging = guard.run('m1', (connect) =>
      connect((bound) => {
        bound()
        return never.promise
      }),
    )
    expect(await guard.run('m1', (connect) => connect(works))).toBe('answer')
    never.resolve('late')
    expect(await hanging).toBe('late')
  })

  test('whose search gets no answer does not close the guard, once connected', async () => {
    const { guard } = await setUp()
    const run = guard.run('m1', (connect) =>
      connect((bound) => {
        bound()
        return fails('unavailable')()
      }),
    )
    await expect(run).rejects.toThrow('for this test')
    expect(await guard.state('m1')).toEqual({ isOpen: true })
  })
})
