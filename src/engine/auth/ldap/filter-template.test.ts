import { expect, test } from 'vitest'
import { renderFilter, requirePlaces } from './filter-template.ts'

const check = (template: string) => () => requirePlaces(template, ['UserAttr', 'Username'], 'userfilter')

test.each([
  '({{.UserAttr}}={{.Username}})',
  '(&(objectClass=person)({{ .UserAttr }}={{ .Username }}))',
  '(|(mail={{.Username}}@example.test)(uid={{.Username}}))',
  '(memberOf:1.2.840.113556.1.4.1941:={{.Username}})',
  '(cn>={{.Username}})',
])('%s is taken', (template) => {
  expect(check(template)).not.toThrow()
})

test.each([
  ['({{.Username}}=*)', 'right of the "="'],
  ['(&(objectClass=person)({{.Username}}=*))', 'right of the "="'],
  ['({{.UserAttr}}{{.Username}}=x)', 'right of the "="'],
  ['(cn={{.UserDN}})', 'may only use {{.UserAttr}} and {{.Username}}'],
  ['(cn={{.Username | lower}})', 'may only use'],
  ['(cn={{.Username})', 'may only use'],
])('%s is refused', (template, message) => {
  expect(check(template)).toThrow(message)
})

test('what is put in stays a value', () => {
  expect(renderFilter('(uid={{.Username}})', { Username: '*)(uid=\\\0' })).toBe('(uid=\\2a\\29\\28uid=\\5c\\00)')
})
