import { expect, test } from 'vitest'
import { derived } from './derived.ts'

test('computes once per object, also when the value is undefined', () => {
  let times = 0
  const lengthOf = derived((text: { value: string }) => {
    times += 1
    return text.value === '' ? undefined : text.value.length
  })
  const [empty, word] = [{ value: '' }, { value: 'word' }]
  expect([lengthOf(word), lengthOf(word), lengthOf(empty), lengthOf(empty)]).toEqual([4, 4, undefined, undefined])
  expect(times).toBe(2)
  expect(lengthOf({ value: 'word' })).toBe(4)
  expect(times).toBe(3)
})
