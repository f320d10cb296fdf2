import { expect, test } from 'vitest'
import { parsePlaceholders, TemplateError } from './placeholders.ts'

const NAMES = ['Username', 'Password']

test.each([
  ['plain', 'plain'],
  ['', ''],
  ['{{.Username}}', 'bob'],
  ['a {{ .Username }}:{{.Password}} z', 'a bob:pa{{.Username}}ss z'],
  ['{single} }} braces', '{single} }} braces'],
])('%s', (template, want) => {
  expect(parsePlaceholders(template, NAMES)({ Username: 'bob', Password: 'pa{{.Username}}ss' })).toBe(want)
})

test.each([
  ['{{.DN}}', '{{.DN}}'],
  ['{{ printf "%q" .Password }}', 'is not one of'],
  ['{{.Username | lowercase}}', 'is not one of'],
  ['{{}}', 'is not one of'],
  ['{{.username}}', 'is not one of'],
  ['{{- .Username -}}', 'is not one of'],
  ['{{.Username', 'without'],
])('refuses %s', (template, fragment) => {
  const parse = () => parsePlaceholders(template, NAMES)
  expect(parse).toThrow(TemplateError)
  expect(parse).toThrow(fragment)
})
