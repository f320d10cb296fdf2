import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Secret } from '../../lib/secret.ts'
import { BerError, BerReader } from './ber.ts'
import { equals } from './filter.ts'
import { decodeAnswer, encodeBind, encodeReplace, encodeSearch } from './message.ts'

const ENTRY = Buffer.from('3028020102642304096469643d6c2c643d78301630140402636e310e0405616c69636504050102ff8000', 'hex')
const RESULT = Buffer.from('300c02010361070a010004000400', 'hex')
const PAGE = Buffer.from(
  '303102010465070a010004000400a02330210416312e322e3834302e3131333535362e312e342e333139040730050201000400',
  'hex',
)

test('an entry, a result, and the cookie of a last page', () => {
  expect(decodeAnswer(ENTRY)).toEqual({
    is: 'entry',
    id: 2,
    entry: {
      dn: 'did=l,d=x',
      attributes: [{ name: 'cn', values: [Buffer.from('alice'), Buffer.from('0102ff8000', 'hex')] }],
    },
  })
  expect(decodeAnswer(PAGE)).toEqual({ is: 'search', id: 4, code: 0, cookie: Buffer.alloc(0) })
  expect(decodeAnswer(RESULT)).toEqual({ is: 'bind', id: 3, code: 0, cookie: undefined })
})

test('whatever is received is an answer or a BerError, and is read once', () => {
  const mutated = fc
    .tuple(
      fc.constantFrom(ENTRY, RESULT, PAGE),
      fc.array(fc.tuple(fc.nat(60), fc.nat(255)), { maxLength: 6 }),
      fc.nat(60),
    )
    .map(([octets, changes, cut]) => {
      const copy = Buffer.from(octets)
      for (const [at, octet] of changes) copy[at % copy.length] = octet
      return cut % 3 === 0 ? copy.subarray(0, cut) : copy
    })
  const any = fc.uint8Array({ maxLength: 60 }).map((octets) => Buffer.from(octets))
  fc.assert(
    fc.property(fc.oneof(mutated, any), (octets) => {
      try {
        expect(decodeAnswer(octets)).toHaveProperty('is')
      } catch (error) {
        expect(error).toBeInstanceOf(BerError)
      }
    }),
    { numRuns: 2_000 },
  )
})

test('a bind in octets (RFC 4511, 4.2)', () => {
  expect(encodeBind(2, 'cn=\u00e9', new Secret('p\u2603')).toString('hex')).toBe(
    '301502010260100201030405636e3dc3a9800470e29883',
  )
})

test('a replace of two attributes is one request; an attribute name that is none is not sent', () => {
  const octets = encodeReplace(3, 'cn=a', [
    { attribute: 'racfPassword', values: [Buffer.from([0, 255])] },
    { attribute: 'racfAttributes', values: [Buffer.from('noexpired')] },
  ])
  const message = new BerReader(octets).inside(0x30)
  expect(message.integer()).toBe(3)
  const modify = message.inside(0x66)
  expect(modify.text()).toBe('cn=a')
  const changes = modify.inside(0x30)
  for (const [name, value] of [
    ['racfPassword', Buffer.from([0, 255])],
    ['racfAttributes', Buffer.from('noexpired')],
  ] as const) {
    const change = changes.inside(0x30)
    expect(change.integer(0x0a)).toBe(2)
    const attribute = change.inside(0x30)
    expect(attribute.text()).toBe(name)
    expect(attribute.inside(0x31).octets()).toEqual(value)
  }
  expect(changes.isAtEnd && modify.isAtEnd && message.isAtEnd).toBe(true)
  expect(() => encodeReplace(3, 'cn=a', [{ attribute: 'a b', values: [] }])).toThrow(
    expect.objectContaining({ kind: 'invalid' }),
  )
})

test('attributes of a search: names, and the words that are none', () => {
  const options = { timeLimitSeconds: 1, dereferenceAliases: 'never', page: undefined } as const
  const search = (attributes: string[]) =>
    encodeSearch(2, { base: '', scope: 'base', filter: equals('a', 'b'), attributes }, options)
  expect(search(['1.1', '*', '+', 'cn;lang-en']).includes(Buffer.from('cn;lang-en'))).toBe(true)
  expect(() => search(['c)n'])).toThrow(expect.objectContaining({ kind: 'invalid' }))
})
