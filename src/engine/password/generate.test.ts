import { expect, test } from 'vitest'
import { BASE62, systemRandom } from '../../lib/random.ts'
import { generatePassword } from './generate.ts'

test.each([
  [{}, 64],
  [{ length: 0 }, 64],
  [{ length: 8 }, 8],
  [{ length: 512 }, 512],
  [{ policy: '' }, 64],
])('%j gives %i characters of base62', (rules, length) => {
  const password = generatePassword(rules, systemRandom).reveal()
  expect(password).toMatch(new RegExp(`^[A-Za-z0-9]{${length}}$`))
})

test('two passwords differ', () => {
  expect(generatePassword({}, systemRandom).equals(generatePassword({}, systemRandom))).toBe(false)
})

test('every character of the alphabet is equally likely', () => {
  const drawn = 62 * 2_000
  const counts = new Map<string, number>()
  for (const character of generatePassword({ length: drawn }, systemRandom).reveal())
    counts.set(character, (counts.get(character) ?? 0) + 1)
  expect(counts.size).toBe(BASE62.length)
  // Chi-square with 61 degrees of freedom: beyond 140 once in ten million runs; taking octets modulo 62 gives about 500.
  const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - 2_000) ** 2 / 2_000, 0)
  expect(chiSquare).toBeLessThan(140)
})

test('a policy that does not exist is named and gives no password', () => {
  expect(() => generatePassword({ policy: 'strict' }, systemRandom)).toThrow(/password policy "strict" does not exist/)
})
