import { expect, test } from 'vitest'
import { Secret } from '../../lib/secret.ts'
import { recordedAnswer, recordedFields, recordedMessage } from './recorded.ts'

const hash = (text: string) => `#${text.length > 40 ? text.length : text}#`

test('values and unknown names are hashed at every depth; known names, truth values and nothing stand as they are', () => {
  const fields = { policies: ['a', 7], odd: { policies: new Secret('s'), 'hunter2!': true, empty: null } }
  expect(recordedFields(fields, ['policies'], hash)).toEqual({
    data: { policies: ['#a#', '#7#'], '#odd#': { policies: '#s#', '#hunter2!#': true, '#empty#': null } },
  })
})

test('of an answer only texts are hashed', () => {
  const at = new Date(0)
  expect(recordedAnswer({ ttl: 5, name: 'app', password: new Secret('s'), at, list: ['x', 1] }, hash)).toEqual({
    data: { ttl: 5, name: '#app#', password: '#s#', at, list: ['#x#', 1] },
  })
})

test.each([
  ['values', { a: Array(1_001).fill(1) }],
  ['names', Object.fromEntries(Array.from({ length: 1_001 }, (_, n) => [`k${n}`, 1]))],
  ['names, long ones', { ['n'.repeat(65_537)]: 1 }],
  ['text', { a: { b: 'x'.repeat(65_537) } }],
  ['text in small pieces', { a: Array(600).fill('x'.repeat(120)) }],
])('too much of it, in %s, is one hash and a size', (_, fields) => {
  const text = JSON.stringify(fields)
  const one = { data: `#${text.length}#`, data_size: text.length }
  expect(recordedFields(fields, ['a', 'b'], hash)).toEqual(one)
  expect(recordedAnswer(fields, hash)).toEqual(one)
  expect(recordedMessage('cannot have that', fields, hash)).toBe('#cannot have that#')
})

test('the largest body costs little: one hash over all of it, and one over a message', () => {
  const startMs = performance.now()
  const hashedSizes: number[] = []
  const measured = (text: string) => `${hashedSizes.push(text.length)}`
  recordedFields({ a: Array(10_000_000).fill(1) }, [], measured)
  recordedMessage('a "aaaa" b', { password: 'aaaa,'.repeat(6_000_000) }, measured)
  expect(hashedSizes).toEqual([20_000_007, 10])
  expect(performance.now() - startMs).toBeLessThan(15_000)
}, 30_000)

test.each([
  ['no such policy: hunter2', { policies: 'abcd, hunter2' }, 'no such policy: #hunter2#'],
  ['no such policy: hunter2', { deep: [{ policies: new Secret('Hunter2') }] }, 'no such policy: #hunter2#'],
  ['"secret one" and "secret"', { a: 'secret', b: 'secret one' }, '"#secret one#" and "#secret#"'],
  ['a.b* is no pattern', { path: 'a.b*' }, '#a.b*# is no pattern'],
  ['too short: abc', { a: 'abc' }, 'too short: abc'],
  ['nothing of it', { a: 'something else' }, 'nothing of it'],
])('%s', (message, fields, want) => {
  expect(recordedMessage(message, fields, hash)).toBe(want)
})

test('what is put in for one quotation is not taken for another', () => {
  const fields = { a: 'quoted', b: ['hmac', 'sha256', 'abcd'].join(','), c: 'bcde' }
  expect(recordedMessage('quoted', fields, () => 'hmac-sha256:abcde')).toBe('hmac-sha256:abcde')
})

test('a message that quotes at length is one hash', () => {
  expect(recordedMessage('x'.repeat(5_000), { a: 'yyyy' }, hash)).toBe('#5000#')
})
