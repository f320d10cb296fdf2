import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { escapeDnValue, firstCn, isBelow, isDn, normalizeDn, parentSuffix, parseDn } from './dn.ts'

describe('one name in two spellings', () => {
  test.each([
    ['uid=alice,ou=people,dc=x', 'UID=Alice , OU = People,DC=X'],
    ['cn=a+uid=b,dc=x', 'uid=b+CN=A,dc=x'],
    ['cn=Smith\\, Pat,dc=x', 'cn="Smith, Pat",dc=x'],
    ['cn=Smith\\, Pat,dc=x', 'cn=Smith\\2C Pat,dc=x'],
    ['cn=a;dc=x', 'cn=a,dc=x'],
    ['cn=jos\\c3\\a9,dc=x', 'cn=jos\u00e9,dc=x'],
    ['cn=jose\u0301,dc=x', 'cn=jos\u00e9,dc=x'],
    ['cn=two  spaces,dc=x', 'cn=two spaces,dc=x'],
    ['cn=a\\3Db,dc=x', 'cn=a=b,dc=x'],
    ['cn=\\ a,dc=x', 'cn=a,dc=x'],
    ['oid.2.5.4.3=a,dc=x', 'cn=a,dc=x'],
    ['2.5.4.11=p,0.9.2342.19200300.100.1.25=x', 'ou=p,dc=x'],
    ['organizationalUnitName=p,domainComponent=x', 'OU=p,DC=x'],
    ['cn=#04026869,dc=x', 'cn=hi,dc=x'],
    ['cn=#0C026869,dc=x', 'cn=hi,dc=x'],
  ])('%s is %s', (a, b) => {
    expect(normalizeDn(a)).toBe(normalizeDn(b))
    expect(isBelow(a, b) && isBelow(b, a)).toBe(true)
  })

  test.each([
    ['cn=a,dc=x', 'cn=b,dc=x'],
    ['cn=a\\,dc=x', 'cn=a,dc=x'],
    ['cn=a\\+uid=b,dc=x', 'cn=a+uid=b,dc=x'],
    ['cn=a+uid=b,dc=x', 'cn=a,dc=x'],
    ['cn=\\ff,dc=x', 'cn=\\fe,dc=x'],
    ['cn=\\#ff,dc=x', 'cn=#ff,dc=x'],
    ['cn=#0201ff,dc=x', 'cn=#0201fe,dc=x'],
    ['cn=,dc=x', 'dc=x'],
  ])('%s is not %s', (a, b) => {
    expect(normalizeDn(a)).not.toBe(normalizeDn(b))
  })
})

test.each([
  'a',
  ',',
  'cn=a,',
  ',cn=a',
  'cn=a,,dc=x',
  '=a',
  'cn',
  'cn=a\\',
  'cn="a',
  'cn="a"b',
  'cn=a"b',
  'cn=<a>',
  'cn=#zz',
  'c n=a',
  '<SID=S-1-5>',
  'alice@example.test',
  'cn=a,dc',
])('%j is no name', (text) => {
  expect(isDn(text)).toBe(false)
  expect(() => parseDn(text)).toThrow(expect.objectContaining({ kind: 'invalid' }))
  // Neither an allowed nor a denied place may silently not apply.
  expect(() => isBelow(text, 'dc=x')).toThrow(expect.objectContaining({ kind: 'invalid' }))
  expect(() => isBelow('dc=x', text)).toThrow(expect.objectContaining({ kind: 'invalid' }))
  expect(firstCn(text)).toBeUndefined()
})

describe('below', () => {
  test.each([
    ['cn=a,ou=team,dc=x', 'ou=team,dc=x', true],
    ['ou=team,dc=x', 'OU=Team,DC=x', true],
    ['ou=team,dc=x', 'cn=a,ou=team,dc=x', false],
    ['cn=a,ou=myteam,dc=x', 'ou=team,dc=x', false],
    ['cn=a\\,ou=team,dc=x', 'ou=team,dc=x', false],
    ['cn="a,ou=team",dc=x', 'ou=team,dc=x', false],
    ['cn=a,ou=team,dc=x,dc=y', 'ou=team,dc=x', false],
    ['cn=a,ou=team+l=b,dc=x', 'ou=team,dc=x', false],
    ['cn=a,dc=x', '', true],
  ])('%s, %s: %s', (dn, base, want) => {
    expect(isBelow(dn, base)).toBe(want)
  })
})

describe('escaping', () => {
  test.each([
    ['Smith, Pat "PJ" + <ops> #1; a=b\\', 'Smith\\, Pat \\"PJ\\" \\+ \\<ops\\> #1\\; a\\=b\\\\'],
    [' a ', '\\ a\\ '],
    ['#a', '\\#a'],
    ['\u00e9\0', '\\c3\\a9\\00'],
    ['', ''],
  ])('%j', (value, want) => {
    expect(escapeDnValue(value)).toBe(want)
  })

  test('whatever is put in comes out as one value, and moves nothing', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme' }), (a, b) => {
        for (const value of [a, b]) {
          // Half of a surrogate pair is no text; UTF-8 has no octets for it.
          if (!value.isWellFormed()) continue
          const dn = `uid=${escapeDnValue(value)},ou=people,dc=x`
          expect(parseDn(dn)).toEqual([
            [{ type: 'uid', value }],
            [{ type: 'ou', value: 'people' }],
            [{ type: 'dc', value: 'x' }],
          ])
          expect(isBelow(dn, 'ou=people,dc=x')).toBe(true)
          expect(normalizeDn(dn)).toBe(normalizeDn(normalizeDn(dn)))
        }
      }),
    )
  })
})

test.each([
  ['cn=Tier 1\\, On-Call,ou=groups,dc=x', 'Tier 1, On-Call'],
  ['uid=a,CN=People,dc=x', 'People'],
  ['2.5.4.3=a,dc=x', 'a'],
  ['uid=a,dc=x', undefined],
  ['', undefined],
])('the first cn of %j is %j', (dn, want) => {
  expect(firstCn(dn)).toBe(want)
})

test('the suffix of a name', () => {
  expect(parentSuffix('CN=bob,OU=People,DC=example,DC=test')).toBe('dc=example,dc=test')
  expect(parentSuffix('cn=a,o=x')).toBe('')
})
