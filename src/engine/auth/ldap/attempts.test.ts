import { expect, test } from 'vitest'
import { createAttempts } from './attempts.ts'

const never = new AbortController().signal
const turnOfLoop = () => new Promise((resolve) => setImmediate(resolve))

/** A counter that allows `allowed` failures, and everybody's attempts under it. */
function counter(allowed: number) {
  const attempts = createAttempts()
  const at = { failures: 0, inside: 0, most: 0, tried: 0, locked: 0 }
  const left = async () => {
    await turnOfLoop()
    return Math.max(0, allowed - at.failures)
  }
  const attempt = async (succeeds: boolean, signal = never) => {
    const leave = await attempts.enter('name', left, signal)
    if (!leave) {
      at.locked += 1
      return
    }
    at.tried += 1
    at.inside += 1
    at.most = Math.max(at.most, at.inside)
    for (let i = 0; i < 3; i++) await turnOfLoop()
    at.inside -= 1
    if (succeeds) at.failures = 0
    else at.failures += 1
    leave()
  }
  return { at, attempt, attempts, left }
}

test('together they fail no more often than one by one', async () => {
  const { at, attempt } = counter(5)
  await Promise.all(Array.from({ length: 100 }, () => attempt(false)))
  expect(at).toMatchObject({ tried: 5, locked: 95 })
})

test('those that succeed all get their turn, several at once', async () => {
  const { at, attempt } = counter(5)
  await Promise.all(Array.from({ length: 100 }, () => attempt(true)))
  expect(at).toMatchObject({ tried: 100, locked: 0, most: 5 })
})

test('who gives up waiting keeps nobody waiting', async () => {
  const { at, attempt, attempts, left } = counter(1)
  const leave = await attempts.enter('name', left, never)
  const gone = new AbortController()
  const given = Array.from({ length: 3 }, () => attempt(true, gone.signal))
  const others = Array.from({ length: 3 }, () => attempt(true))
  for (let i = 0; i < 10; i++) await turnOfLoop()
  // The first of them is told that it is its turn in the moment in which it gives up.
  leave?.()
  gone.abort(new Error('gone'))
  expect((await Promise.allSettled(given)).map(({ status }) => status)).toEqual(Array(3).fill('rejected'))
  await Promise.all(others)
  expect(at.tried).toBe(3)
})

test('a counter that cannot be read keeps nobody out afterwards', async () => {
  const { attempts, left } = counter(1)
  await expect(attempts.enter('name', () => Promise.reject(new Error('store')), never)).rejects.toThrow('store')
  expect(await attempts.enter('name', left, never)).toBeDefined()
})
