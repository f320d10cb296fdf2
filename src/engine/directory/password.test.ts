import { expect, test } from 'vitest'
import { Secret } from '../../lib/secret.ts'
import { passwordChanges } from './password.ts'

const changes = (...args: Parameters<typeof passwordChanges>) =>
  passwordChanges(...args).map(({ attribute, values }) => [attribute, values.map((value) => value.toString('hex'))])

test('OpenLDAP gets the clear text in UTF-8', () => {
  expect(changes('openldap', new Secret('p\u00e4\u2603'), 'password')).toEqual([['userPassword', ['70c3a4e29883']]])
})

test('Active Directory gets UTF-16LE between double quotes (MS-ADTS 3.1.1.3.1.5)', () => {
  expect(changes('ad', new Secret('n"\u20ac'), 'password')).toEqual([['unicodePwd', ['22006e002200ac202200']]])
})

test.each([
  ['password', 'racfPassword'],
  ['phrase', 'racfPassPhrase'],
] as const)('RACF gets a %s in its own attribute, not expired, in one request', (type, attribute) => {
  expect(changes('racf', new Secret('AB'), type)).toEqual([
    [attribute, ['4142']],
    ['racfAttributes', [Buffer.from('noexpired').toString('hex')]],
  ])
})

test.each(['openldap', 'ad', 'racf'] as const)('%s never gets an empty password', (schema) => {
  expect(() => passwordChanges(schema, new Secret(''), 'password')).toThrow(
    expect.objectContaining({ kind: 'invalid' }),
  )
})
