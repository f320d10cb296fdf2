import { expect, test } from 'vitest'
import { createLoginTurns } from './login-turns.ts'

/** Logins that ask the directory until they are let go. */
function logins(limits: { atOnce: number; most: number }) {
  const admission = createLoginTurns(limits)
  const begun: string[] = []
  const { promise: held, resolve: letGo } = Promise.withResolvers<void>()
  const login = (name: string, ...signals: AbortSignal[]) =>
    admission.admit('mount', () =>
      admission.inTurn('mount', signals, async () => {
        begun.push(name)
        await held
        return name
      }),
    )
  return { begun, letGo, login, admission }
}

test('so many ask at once, the others in their order, and beyond the limit nobody waits', async () => {
  const { begun, letGo, login, admission } = logins({ atOnce: 2, most: 4 })
  const four = ['a', 'b', 'c', 'd'].map((name) => login(name))
  await expect(login('e')).rejects.toMatchObject({ kind: 'unavailable' })
  // Another mount is another line.
  expect(await admission.admit('other', async () => 'in')).toBe('in')
  expect(begun).toEqual(['a', 'b'])
  letGo()
  expect(await Promise.all(four)).toEqual(['a', 'b', 'c', 'd'])
  expect(begun).toEqual(['a', 'b', 'c', 'd'])
  expect(await login('e')).toBe('e')
})

test('who goes while waiting is left out and leaves the place to the next; who has begun ends', async () => {
  const { begun, letGo, login } = logins({ atOnce: 1, most: 10 })
  const [first, waiting] = [new AbortController(), new AbortController()]
  const a = login('a', first.signal)
  const b = login('b', first.signal, waiting.signal)
  const c = login('c')
  waiting.abort(new Error('gone'))
  await expect(b).rejects.toThrow('gone')
  first.abort(new Error('gone'))
  letGo()
  expect(await Promise.all([a, c])).toEqual(['a', 'c'])
  expect(begun).toEqual(['a', 'c'])
})

test('who goes in the moment in which its turn comes passes it on', async () => {
  const { letGo, login } = logins({ atOnce: 1, most: 10 })
  const gone = new AbortController()
  const a = login('a')
  const b = login('b', gone.signal)
  const c = login('c')
  letGo()
  await a
  gone.abort(new Error('gone'))
  await b.catch(() => undefined)
  expect(await c).toBe('c')
})
