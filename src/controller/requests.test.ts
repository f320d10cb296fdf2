import { expect, test } from 'vitest'
import { echoOf } from './requests.ts'

test('a request is repeated as it is, or as its digest where it is longer than a status takes', () => {
  expect(echoOf(undefined)).toBeUndefined()
  expect(echoOf('now')).toBe('now')
  expect(echoOf('a'.repeat(256))).toBe('a'.repeat(256))
  expect(echoOf('a'.repeat(257))).toMatch(/^sha256:[0-9a-f]{64}$/)
  expect(echoOf('a'.repeat(257))).not.toBe(echoOf('b'.repeat(257)))
})
