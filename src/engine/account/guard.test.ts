import { describe, expect, test } from 'vitest'
import { memoryStore } from '../../../test/support/memory-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import { createLogger } from '../../lib/log.ts'
import { systemRandom } from '../../lib/random.ts'
import type { Admission } from '../directory/directory.ts'
import { DirectoryError, type DirectoryErrorClass } from '../directory/errors.ts'
import { VersionConflict } from '../storage/driver.ts'
import { createDirectoryGuard, type DirectoryGuard, GuardClosed } from './guard.ts'

const MINUTE = 60_000

async function setUp() {
  const clock = new TestClock()
  const store = await memoryStore(clock)
  const start = () =>
    createDirectoryGuard({ store, clock, random: systemRandom, log: createLogger({ level: 'silent' }) })
  return { clock, start, guard: start() }
}

const never = new AbortController().signal
const works = async () => 'answer'
/** Work on a new connection, whose bind ends so; the rest of it works. */
const binding =
  (bind: () => Promise<unknown> = works, server = 's1') =>
  async (admission: Admission) => {
    await admission.bind(server, never, async () => void (await bind()))
    admission.connected()
    return 'answer'
  }
const fails = (errorClass: DirectoryErrorClass, resultCode?: number) => async () => {
  throw new DirectoryError(errorClass, 'for this test', resultCode === undefined ? {} : { resultCode })
}

/** What came of a piece of work: its answer, the class of its failure, or that it was not run. */
async function outcome(
  guard: DirectoryGuard,
  work: (admission: Admission) => Promise<string>,
  mount = 'm1',
): Promise<string> {
  return guard.run(mount, work).catch((error) => (error instanceof GuardClosed ? `not run: ${error.why}` : error.class))
}

describe('our own bind refused', () => {
  const refused = binding(fails('bind-refused'))

  test('lets one probe through in 5 minutes, whoever asks', async () => {
    const { clock, guard } = await setUp()
    let binds = 0
    const counted = binding(async () => {
      binds += 1
      return fails('bind-refused')()
    })
    expect(await outcome(guard, counted)).toBe('bind-refused')
    for (let minute = 0; minute < 30; minute++) {
      for (let i = 0; i < 3; i++) await outcome(guard, counted)
      await clock.advance(MINUTE)
    }
    expect(binds).toBe(6)
  })

  test('is remembered over a restart and counts for other servers too', async () => {
    const { clock, guard, start } = await setUp()
    await outcome(guard, refused)
    const restarted = start()
    expect(await outcome(restarted, works)).toBe('not run: bind-refused')
    await clock.advance(5 * MINUTE)
    const both = await Promise.all([outcome(restarted, refused), outcome(guard, refused)])
    expect(both.sort()).toEqual(['bind-refused', 'not run: bind-refused'])
  })

  test('is over when the bind of a probe works', async () => {
    const { clock, guard } = await setUp()
    await outcome(guard, refused)
    await clock.advance(5 * MINUTE)
    expect(await outcome(guard, binding())).toBe('answer')
    expect(await outcome(guard, works)).toBe('answer')
    expect(await guard.state('m1')).toEqual({ isOpen: true })
  })

  test('is not over when a probe needed no bind', async () => {
    const { clock, guard } = await setUp()
    await outcome(guard, refused)
    await clock.advance(5 * MINUTE)
    expect(await outcome(guard, works)).toBe('answer')
    expect(await outcome(guard, works)).toBe('not run: bind-refused')
  })

  test('a probe that ends before it asks, for its records have changed, leaves it to the next', async () => {
    const { clock, guard } = await setUp()
    await outcome(guard, refused)
    await clock.advance(5 * MINUTE)
    const changed = async () => {
      throw new VersionConflict('role')
    }
    await expect(guard.run('m1', changed)).rejects.toThrow(VersionConflict)
    expect(await outcome(guard, refused)).toBe('bind-refused')
    // One that asked has used it up, whatever changed afterwards.
    await clock.advance(5 * MINUTE)
    const asked = async (admission: Admission) => {
      await admission.bind('s1', never, fails('bind-refused')).catch(() => undefined)
      return changed()
    }
    await expect(guard.run('m1', asked)).rejects.toThrow(VersionConflict)
    expect(await outcome(guard, works)).toBe('not run: bind-refused')
  })

  test('is over when the connection is configured anew', async () => {
    const { guard, start } = await setUp()
    await outcome(guard, refused)
    expect(await guard.state('m1')).toMatchObject({ isOpen: false, why: 'bind-refused' })
    await guard.reset('m1')
    expect(await outcome(start(), binding())).toBe('answer')
  })

  test('counts only for the configuration that it is of, and work of an older one binds no more', async () => {
    const { guard } = await setUp()
    const answer = Promise.withResolvers<void>()
    const begun = Promise.withResolvers<void>()
    const slow = outcome(
      guard,
      binding(async () => {
        begun.resolve()
        await answer.promise
        return fails('bind-refused')()
      }),
    )
    await begun.promise
    let later = 0
    const waiting = outcome(
      guard,
      binding(async () => {
        later += 1
      }),
    )
    await guard.reset('m1')
    answer.resolve()
    expect(await slow).toBe('bind-refused')
    await waiting
    expect(later).toBe(0)
    expect(await guard.state('m1')).toEqual({ isOpen: true })
    expect(await outcome(guard, binding())).toBe('answer')
  })

  test('of one mount does not close another', async () => {
    const { guard } = await setUp()
    await outcome(guard, refused)
    expect(await outcome(guard, works, 'm2')).toBe('answer')
  })

  test('is presented once by work that begins at one moment', async () => {
    const { guard } = await setUp()
    let binds = 0
    const counted = binding(async () => {
      binds += 1
      return fails('bind-refused')()
    })
    const all = await Promise.all(Array.from({ length: 8 }, () => outcome(guard, counted)))
    expect(binds).toBe(1)
    expect(all.filter((one) => one === 'not run: bind-refused')).toHaveLength(7)
  })

  test('of somebody else, who is no identity of the mount, says nothing', async () => {
    const { guard } = await setUp()
    expect(await outcome(guard, fails('bind-refused'))).toBe('bind-refused')
    expect(await guard.state('m1')).toEqual({ isOpen: true })
  })
})

describe('a directory that cannot be reached', () => {
  test('is probed from 1 to 3 seconds apart, one at a time', async () => {
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
    expect(waitsMs[3]).toBeGreaterThan(waitsMs[0] ?? 0)
    expect(Math.max(...waitsMs)).toBeLessThanOrEqual(3_600)
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

describe('work that waits for a place at a server', () => {
  test('is not begun when another could not reach it meanwhile, unless it is the probe', async () => {
    const { clock, guard } = await setUp()
    const place = Promise.withResolvers<void>()
    const waiting = outcome(guard, async (admission) => {
      await place.promise
      admission.entered()
      return 'answer'
    })
    expect(await outcome(guard, fails('unavailable'))).toBe('unavailable')
    place.resolve()
    expect(await waiting).toBe('not run: unavailable')
    await clock.advance(3_000)
    const probing = async (admission: Admission) => {
      admission.entered()
      return 'answer'
    }
    expect(await outcome(guard, probing)).toBe('answer')
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
    const late = Promise.withResolvers<string>()
    const hanging = guard.run('m1', async (admission) => {
      await binding()(admission)
      return late.promise
    })
    expect(await outcome(guard, binding())).toBe('answer')
    late.resolve('late')
    expect(await hanging).toBe('late')
  })

  test('whose search gets no answer does not close the guard, once connected', async () => {
    const { guard } = await setUp()
    const run = guard.run('m1', async (admission) => {
      await binding()(admission)
      return fails('unavailable')()
    })
    await expect(run).rejects.toThrow('for this test')
    expect(await guard.state('m1')).toEqual({ isOpen: true })
  })
})

describe('binds at one moment', () => {
  test('wait for each other at a server, and not for those at another', async () => {
    const { guard } = await setUp()
    const slow = Promise.withResolvers<void>()
    const first = outcome(
      guard,
      binding(() => slow.promise),
    )
    let isBehind = true
    const second = outcome(
      guard,
      binding(async () => {
        isBehind = false
      }),
    )
    expect(await outcome(guard, binding(works, 's2'))).toBe('answer')
    expect(isBehind).toBe(true)
    slow.resolve()
    expect([await first, await second]).toEqual(['answer', 'answer'])
  })

  test('fail with the one before them that got no answer, and leave the line when given up', async () => {
    const { guard } = await setUp()
    const silent = Promise.withResolvers<void>()
    const first = outcome(
      guard,
      binding(async () => {
        await silent.promise
        return fails('unavailable')()
      }),
    )
    let sent = 0
    const counted = async () => {
      sent += 1
    }
    const behind = Array.from({ length: 3 }, () => outcome(guard, binding(counted)))
    const gone = new AbortController()
    const impatient = guard.run('m1', (admission) => admission.bind('s1', gone.signal, counted))
    gone.abort(new Error('gone'))
    await expect(impatient).rejects.toThrow('gone')
    silent.resolve()
    expect(await first).toBe('unavailable')
    expect(new Set(await Promise.all(behind))).toEqual(new Set(['unavailable']))
    expect(sent).toBe(0)
  })
})
