import fc from 'fast-check'
import { BerWriter } from 'ldapts'
import { describe, expect, test } from 'vitest'
import { BerReader } from './ber.ts'
import { and, equals, escapeFilterValue, type Filter, or, parseFilter, present } from './filter.ts'

/** What a server reads from the octets of a filter. */
function onWire(filter: Filter): Buffer {
  const writer = new BerWriter()
  filter.wire.write(writer)
  return writer.buffer
}

function readEquality(octets: Buffer): { attribute: string; value: Buffer } {
  const reader = new BerReader(octets)
  const inner = reader.inside(0xa3)
  const found = { attribute: inner.text(), value: inner.octets() }
  expect(inner.isAtEnd && reader.isAtEnd).toBe(true)
  return found
}

const NASTY = [
  '*',
  '(',
  ')',
  '\\',
  '\0',
  ')(uid=*',
  '*)(|(cn=*',
  '\\2a',
  '\\',
  'jos\u00e9',
  '\u2603',
  ' a ',
  '',
  '=',
  '&|!',
  '\u{1f600}',
  '\r\n',
  'a\\00b',
]

describe('values', () => {
  test.each(NASTY)('%j stays one value, built and parsed', (value) => {
    const want = { attribute: 'uid', value: Buffer.from(value) }
    expect(readEquality(onWire(equals('uid', value)))).toEqual(want)
    const parsed = parseFilter(`(uid=${escapeFilterValue(value)})`)
    expect(readEquality(onWire(parsed))).toEqual(want)
  })

  test('any text put into a template stays one value', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.string({ unit: 'binary' }), (a, b) => {
        for (const value of [a, b]) {
          const reader = new BerReader(onWire(parseFilter(`(&(objectClass=person)(uid=${escapeFilterValue(value)}))`)))
          const parts = reader.inside(0xa0)
          parts.next(0xa3)
          const uid = parts.inside(0xa3)
          expect(uid.text()).toBe('uid')
          expect(uid.octets().equals(Buffer.from(value))).toBe(true)
          expect(parts.isAtEnd).toBe(true)
        }
      }),
    )
  })

  test('octets that are no text are sent as they are', () => {
    const sid = Buffer.from([0x01, 0xff, 0x80, 0x00])
    expect(readEquality(onWire(equals('objectSid', sid))).value).toEqual(sid)
    expect(readEquality(onWire(parseFilter('(objectSid=\\01\\fF\\80\\00)'))).value).toEqual(sid)
  })
})

describe('an administrator writes', () => {
  test.each([
    ['(cn=jos\\c3\\a9)', '(cn=jos\u00e9)'],
    ['(& (a=1) (b=2) )', '(&(a=1)(b=2))'],
    ['(&(a=1)\n  (b=2))', '(&(a=1)(b=2))'],
    [' (|(a=1)(!(b=2))) ', '(|(a=1)(!(b=2)))'],
    ['(a=**)', '(a=*)'],
    ['(a=x**y)', '(a=x*y)'],
  ])('%j for what is spelled %j', (text, same) => {
    expect(onWire(parseFilter(text))).toEqual(onWire(parseFilter(same)))
  })

  test.each([
    ['(cn=*)', '8702636e'],
    ['(cn;lang-en=a)', 'a30f040a636e3b6c616e672d656e040161'],
    ['(1.2.840.113556.1.4.803=1)', 'a31b0416312e322e3834302e3131333535362e312e342e383033040131'],
    ['(a=x*y*z)', 'a40e0401613009800178810179' + '82017a'],
    ['(a=*y*)', 'a4080401613003810179'],
    ['(a>=5)', 'a506040161040135'],
    ['(a<=5)', 'a606040161040135'],
    ['(a~=5)', 'a806040161040135'],
    ['(member:1.2.3:=x)', 'a9128105312e322e3382066d656d626572830178'],
    ['(a:dn:2.4:=x)', 'a90e8103322e3482016183017884' + '01ff'],
    ['(a=)', 'a3050401610400'],
    ['(!(a=1))', 'a208a306040161040131'],
  ])('%s', (text, hex) => {
    expect(onWire(parseFilter(text)).toString('hex')).toBe(hex)
  })

  test.each([
    '',
    '()',
    'a=1',
    '(a=1',
    '(a=1))',
    '(a=1)(b=2)',
    '((a=1))',
    '(a=b\\)',
    '(a=\\zz)',
    '(a=\\2)',
    '(a>1)',
    '(=1)',
    '(a b=1)',
    '(a=(b)',
    '(a>=1*)',
    '(a:=1*2)',
    '(:=x)',
    '(a:dn=x)',
    '(a:rule=x)',
    '(&)',
    '(|)',
    '(!)',
    '(!(a=1)(b=2))',
    '(a_b=1)',
    '(a=\\ff*)',
    '('.repeat(80),
    `${'(!'.repeat(60)}(a=1)${')'.repeat(60)}`,
  ])('%j, which is refused', (text) => {
    expect(() => parseFilter(text)).toThrow(expect.objectContaining({ kind: 'invalid' }))
  })

  test('the error tells the position and not the text', () => {
    expect(() => parseFilter('(&(cn=pl4nted)(bad')).toThrow(/position \d+/)
    expect(() => parseFilter('(&(cn=pl4nted)(bad')).not.toThrow(/pl4nted/)
  })
})

test('attribute names are checked, so that nothing else can be one', () => {
  for (const name of ['', 'a)(b', 'a b', 'a=', '\u00e9', '1.', '*']) {
    expect(() => equals(name, 'x')).toThrow(expect.objectContaining({ kind: 'invalid' }))
    expect(() => present(name)).toThrow(expect.objectContaining({ kind: 'invalid' }))
  }
})

test('all of several and any of several', () => {
  const [a, b] = [equals('a', '1'), present('b')]
  expect(onWire(and(a, b))).toEqual(onWire(parseFilter('(&(a=1)(b=*))')))
  expect(onWire(or(a, b))).toEqual(onWire(parseFilter('(|(a=1)(b=*))')))
})
