import * as fc from 'fast-check'
import { describe, expect, it, test } from 'vitest'
import { AppError } from '../../lib/errors.ts'
import { type HclValue, isHclObject, parseHcl } from './hcl.ts'
import { parsePolicy, plainPolicyText } from './policy-text.ts'

/** As plain JavaScript, labels joined into the key. */
function plain(value: HclValue): unknown {
  if (isHclObject(value)) return value.members.map((m) => [[m.key, ...m.labels].join(' '), plain(m.value)])
  return Array.isArray(value) ? value.map(plain) : value
}

describe('HCL', () => {
  test.each([
    { text: '', want: [] },
    { text: '# only\n// comments\n/* of\nevery */ # kind', want: [] },
    { text: 'a = 1', want: [['a', 1]] },
    {
      text: 'a = -1.5e2 b = 0',
      want: [
        ['a', -150],
        ['b', 0],
      ],
    },
    {
      text: 'a = true\nb = false\nc = null',
      want: [
        ['a', true],
        ['b', false],
        ['c', null],
      ],
    },
    { text: 'a = "x#y//z"', want: [['a', 'x#y//z']] },
    { text: String.raw`a = "q\"b\\n\n\té\U0001f511"`, want: [['a', 'q"b\\n\n\té🔑']] },
    { text: 'a = []', want: [['a', []]] },
    { text: 'a = ["x", 2, [true],]', want: [['a', ['x', 2, [true]]]] },
    { text: 'path "secret/*" { x = 1 }', want: [['path secret/*', [['x', 1]]]] },
    { text: 'rule charset "az" {\n}', want: [['rule charset az', []]] },
    { text: 'a { b { c = 1 } }', want: [['a', [['b', [['c', 1]]]]]] },
    {
      text: 'a = { "*" = [] , b = 2 }',
      want: [
        [
          'a',
          [
            ['*', []],
            ['b', 2],
          ],
        ],
      ],
    },
    {
      text: '{"path": {"x": {"a": [1, "b"]}, "y": {}}}',
      want: [
        [
          'path',
          [
            ['x', [['a', [1, 'b']]]],
            ['y', []],
          ],
        ],
      ],
    },
    {
      text: '\u{feff}a = 1\r\nb = 2',
      want: [
        ['a', 1],
        ['b', 2],
      ],
    },
    {
      text: 'a = 1\na = 2',
      want: [
        ['a', 1],
        ['a', 2],
      ],
    },
    { text: 'größe-2.x = 1', want: [['größe-2.x', 1]] },
  ])('reads $text', ({ text, want }) => expect(plain(parseHcl(text, 'policy'))).toEqual(want))

  test.each([
    { text: 'a = ', fragment: 'line 1: expected a value, found the end' },
    { text: '\n\na = x', fragment: 'line 3: the text x must stand in quotes' },
    { text: 'a = "x', fragment: 'line 1: a quoted text is not closed' },
    { text: 'a = "x\ny"', fragment: 'line 1: a quoted text is not closed' },
    { text: 'a = "\\q"', fragment: 'line 1: unknown escape "\\q"' },
    { text: 'a = "\\u12"', fragment: 'unknown escape' },
    { text: 'a = "\\Uffffffff"', fragment: 'unknown escape' },
    { text: 'a = 12ab', fragment: 'line 1: unexpected character' },
    { text: '/* x', fragment: 'line 1: a comment is not closed' },
    { text: '# c\npath "x" {\n  a = 1', fragment: 'line 3: expected a name, found the end' },
    { text: '/* 1\n2\n3 */ }', fragment: 'line 3: expected a name, found "}"' },
    { text: 'a = [1 2]', fragment: 'expected "]", found the number 2' },
    { text: 'a = [1', fragment: 'expected "]", found the end' },
    { text: 'path "x" = 1', fragment: 'expected "=" or "{" after "path"' },
    { text: '{} x', fragment: 'expected the end' },
    { text: `a = ${'['.repeat(40)}`, fragment: 'nested deeper than 16 levels' },
    { text: 'a { '.repeat(40), fragment: 'nested deeper than 16 levels' },
    { text: `a = "${'x'.repeat(300_000)}"`, fragment: 'longer than 256 KiB' },
    { text: 'a = @', fragment: 'unexpected character "@"' },
  ])('refuses with $fragment', ({ text, fragment }) => {
    expect(() => parseHcl(text, 'policy')).toThrow(expect.objectContaining({ kind: 'invalid' }))
    expect(() => parseHcl(text, 'policy')).toThrow(fragment)
  })

  it('reads whatever JSON.stringify writes', () => {
    void fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 5 })), (object) => {
        const read = (value: HclValue): unknown => {
          if (isHclObject(value)) return Object.fromEntries(value.members.map((m) => [m.key, read(m.value)]))
          return Array.isArray(value) ? value.map(read) : value
        }
        const text = JSON.stringify(object)
        expect(JSON.stringify(read(parseHcl(text, 'policy')))).toBe(JSON.stringify(JSON.parse(text)))
      }),
    )
  })

  it('answers or refuses every text, and quickly', () => {
    const pieces = fc.constantFrom(
      'path',
      '"a/*"',
      '{',
      '}',
      '[',
      ']',
      '=',
      ':',
      ',',
      '"',
      '\\',
      '#',
      '//',
      '/*',
      '*/',
      '\n',
      ' ',
      'capabilities',
      '"read"',
      '1',
      '-',
      'true',
      'policy',
      'allowed_parameters',
      '"*"',
      '{{',
      '\u{1f511}',
      '\ud800',
    )
    const texts = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(pieces, { maxLength: 60 }).map((p) => p.join('')),
    )
    void fc.assert(
      fc.property(texts, (text) => {
        try {
          parsePolicy(plainPolicyText(text))
        } catch (error) {
          if (!(error instanceof AppError)) throw error
          expect(error.kind).toBe('invalid')
        }
      }),
      { numRuns: 3000 },
    )
  })
})

describe('policy text', () => {
  test.each([
    { text: ' ', fragment: 'policy must not be empty' },
    { text: 'rule "x" {}', fragment: '"rule" is not known here' },
    { text: 'path "x" "y" {}', fragment: 'one pattern' },
    { text: 'path { capabilities = ["read"] }', fragment: 'must have a block' },
    { text: 'path = 1', fragment: 'followed by a pattern' },
    { text: 'path "x" { }', fragment: 'path "x" has no capabilities' },
    { text: 'path "x" { capabilities = "read" }', fragment: 'capabilities must be a list' },
    { text: 'path "x" { capabilities = ["reed"] }', fragment: '"reed" is not a capability' },
    { text: 'path "x" { capabilities = [1] }', fragment: 'capabilities must be a list of texts' },
    { text: 'path "x" { policy = "admin" }', fragment: 'policy must be' },
    { text: 'path "x" { capabilities = ["read"]\n control_group = {} }', fragment: 'line 2: "control_group"' },
    { text: 'path "x" { capabilities = ["read"] allowed_parameters = [] }', fragment: 'must be an object' },
    { text: 'path "x" { capabilities = ["read"] denied_parameters = { a = 1 } }', fragment: '"a" must be a list' },
    {
      text: 'path "x" { capabilities = ["read"]\n min_wrapping_ttl = "1m" }',
      fragment: 'line 2: min_wrapping_ttl is not',
    },
    { text: '{"path": {"x": {"capabilities": ["read"], "max_wrapping_ttl": 0}}}', fragment: 'max_wrapping_ttl is not' },
    { text: '\npath "u/{{identity.entity.id}}/*" { capabilities = ["read"] }', fragment: 'u/{{identity.entity.id}}' },
    { text: 'path "a*b" { capabilities = ["read"] }', fragment: '"*" may only stand at the end' },
    { text: 'path "a/+*" { capabilities = ["read"] }', fragment: '"+*" is not a pattern' },
  ])('refuses with $fragment', ({ text, fragment }) => {
    expect(() => parsePolicy(text)).toThrow(expect.objectContaining({ kind: 'invalid' }))
    expect(() => parsePolicy(text)).toThrow(fragment)
  })

  const hcl = 'path "/ldap/creds/*" {\n  capabilities = ["read"]\n}'
  const json = '{"path": {"ldap/creds/*": {"capabilities": ["read"]}}}'
  const listed = '{"path": [{"ldap/creds/*": [{"capabilities": ["read"]}]}]}'
  test.each([
    { spelling: 'HCL', text: hcl },
    { spelling: 'JSON', text: json },
    { spelling: 'JSON with lists', text: listed },
    { spelling: 'base64 of HCL', text: Buffer.from(hcl).toString('base64') },
    { spelling: 'base64 of JSON, in lines', text: Buffer.from(json).toString('base64').replace(/.{20}/g, '$&\n') },
  ])('means the same in $spelling', ({ text }) => {
    const rules = parsePolicy(plainPolicyText(text))
    expect(rules.map(({ pattern, capabilities }) => [pattern, [...capabilities]])).toEqual([['ldap/creds/*', ['read']]])
  })
})
