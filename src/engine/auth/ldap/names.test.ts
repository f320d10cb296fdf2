import { expect, test } from 'vitest'
import { countedEntry, countedName, nameKey } from './names.ts'

test.each(['alice', 'ALICE', ' alice ', 'ａlice', 'aⓛice', '\u{1d41a}lice'])('%s is the key of alice', (name) => {
  expect(nameKey(name, { caseSensitiveNames: false })).toBe('alice')
  expect(countedName(name)).toBe('alice')
})

test('inner spaces count as one', () => {
  expect(nameKey('Bob   Example', { caseSensitiveNames: false })).toBe('bob example')
  expect(countedName('Bob\u2003\u00a0Example')).toBe('bob example')
})

test('names that are told apart by case are not told apart by spelling', () => {
  const key = (name: string) => nameKey(name, { caseSensitiveNames: true })
  expect(key('Alice')).not.toBe(key('alice'))
  expect(key('Ａlice ')).toBe('Alice')
})

test.each(['álice', 'a\u0301lice', 'al\u00adice', 'al\u200bice', 'al\u0131ce'])('%s is counted as alice', (name) => {
  expect(countedName(name)).toBe('alice')
})

test('but maps to nothing of hers', () => {
  expect(nameKey('álice', { caseSensitiveNames: false })).not.toBe('alice')
  expect(nameKey('al\u0131ce', { caseSensitiveNames: false })).not.toBe('alice')
})

test('an entry is one counter however its name is written, and never that of a name', () => {
  expect(countedEntry('UID=Bob, ou=People,dc=x')).toBe(countedEntry('uid=bob,ou=people,dc=x'))
  expect(countedName(countedEntry('uid=bob,dc=x'))).not.toBe(countedEntry('uid=bob,dc=x'))
})
