import { expect, test } from 'vitest'
import { DirectorySlots } from './directory-slots.ts'
import type { ResourceRef } from './source/source.ts'

const ref = (name: string): ResourceRef => ({ kind: 'LdapStaticRole', namespace: 'demo', name })

function world() {
  const asked: [name: string, afterMs: number | undefined][] = []
  const slots = new DirectorySlots({ perEngine: 2, total: 3 }, ({ name }, { afterMs } = {}) =>
    asked.push([name, afterMs]),
  )
  const begin = (engine: string, name: string) => {
    const { promise, resolve } = Promise.withResolvers<string>()
    return { ended: slots.run(engine, ref(name), () => promise), end: () => resolve(name) }
  }
  return { asked, begin }
}

test('an engine has so many places, all together have more', async () => {
  const { asked, begin } = world()
  const a = begin('frozen', 'a')
  const b = begin('frozen', 'b')
  expect(await begin('frozen', 'c').ended).toBe('busy')
  const d = begin('healthy', 'd')
  expect(await begin('healthy', 'e').ended).toBe('busy')
  expect(asked).toEqual([
    ['c', 5_000],
    ['e', 5_000],
  ])
  for (const one of [a, b, d]) one.end()
  expect(await Promise.all([a.ended, b.ended, d.ended])).toEqual(['a', 'b', 'd'])
})

test('a place that becomes free is for the first who can use it, also after a failure', async () => {
  const { asked, begin } = world()
  const a = begin('frozen', 'a')
  const b = begin('frozen', 'b')
  const d = begin('healthy', 'd')
  await begin('frozen', 'c').ended
  await begin('healthy', 'e').ended
  asked.length = 0
  d.end()
  await d.ended
  // There is still no place at the frozen one.
  expect(asked).toEqual([['e', undefined]])
  a.end()
  await a.ended
  expect(asked.at(-1)).toEqual(['c', undefined])
  b.end()
  await b.ended
  expect(asked).toHaveLength(2)
})
