import { expect, test } from 'vitest'
import { TestClock } from '../../../test/support/test-clock.ts'
import { systemRandom } from '../../lib/random.ts'
import { createServers } from './servers.ts'

const never = new AbortController().signal
const [A, B, C] = ['ldap://a', 'ldap://b', 'ldap://c'] as const
const ALL = [A, B, C]

function setUp() {
  const clock = new TestClock()
  return { clock, servers: createServers({ clock, random: systemRandom }) }
}

test('the configured order, those that are down last, the one back soonest first', () => {
  const { servers } = setUp()
  expect(servers.order(ALL)).toEqual([A, B, C])
  for (let i = 0; i < 4; i++) servers.failed(A)
  servers.failed(B)
  expect(servers.order(ALL)).toEqual([C, B, A])
  servers.reached(A)
  expect(servers.order(ALL)).toEqual([A, C, B])
})

test('when its time is over a server is tried by one, while the others go on elsewhere', async () => {
  const { clock, servers } = setUp()
  servers.failed(A)
  await clock.advance(1_300)
  expect(servers.order(ALL)).toEqual([A, B, C])
  expect(servers.order(ALL)).toEqual([B, C, A])
  await clock.advance(1_300)
  expect(servers.order(ALL)).toEqual([A, B, C])
})

test('the time grows to a minute and no further', async () => {
  const { clock, servers } = setUp()
  for (let i = 0; i < 50; i++) servers.failed(A)
  await clock.advance(45_000)
  expect(servers.order(ALL)).toEqual([B, C, A])
  await clock.advance(30_000)
  expect(servers.order(ALL)).toEqual([A, B, C])
})

test('forgotten with its configuration', () => {
  const { servers } = setUp()
  servers.failed(A)
  servers.forget([A])
  expect(servers.order(ALL)).toEqual([A, B, C])
})

test('a place that becomes free goes to who waited longest, never to one too many', async () => {
  const { servers } = setUp()
  const inside: string[] = []
  const enter = async (name: string, signal = never) => {
    const leave = await servers.enter('work', A, 1, signal)
    inside.push(name)
    return leave
  }
  const leaveFirst = await enter('1')
  const second = enter('2')
  const gone = new AbortController()
  const third = enter('3', gone.signal)
  const fourth = enter('4')
  gone.abort(new Error('gone'))
  await expect(third).rejects.toThrow('gone')
  leaveFirst()
  leaveFirst()
  // Who comes now, before the one who waited could run, waits as well.
  const fifth = enter('5')
  const leaveSecond = await second
  expect(inside).toEqual(['1', '2'])
  leaveSecond()
  const leaveFourth = await fourth
  leaveFourth()
  const leaveFifth = await fifth
  leaveFifth()
  expect(inside).toEqual(['1', '2', '4', '5'])
  // Other lanes and other servers have places of their own.
  await Promise.all([servers.enter('login', A, 1, never), servers.enter('work', B, 1, never), enter('6')])
})

test('whose time is over before there is a place never enters', async () => {
  const { servers } = setUp()
  const leave = await servers.enter('work', A, 1, never)
  await expect(servers.enter('work', A, 1, AbortSignal.abort(new Error('late')))).rejects.toThrow('late')
  leave()
  await servers.enter('work', A, 1, never)
})
