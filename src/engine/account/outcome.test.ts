import { expect, test } from 'vitest'
import { DirectoryError, fromResultCode } from '../directory/errors.ts'
import { fateOf } from './outcome.ts'

test.each([
  { code: 19, fate: 'refused', why: 'a rule for passwords' },
  { code: 32, fate: 'refused', why: 'no such entry' },
  { code: 50, fate: 'refused', why: 'no right' },
  { code: 53, fate: 'refused', why: 'unwilling' },
  { code: 51, fate: 'not-done', why: 'busy: it did not begin' },
  { code: 52, fate: 'unknown', why: 'a proxy lost the server to which it had passed the request on' },
  { code: 11, fate: 'unknown', why: 'a proxy waited no longer for the answer' },
  { code: 3, fate: 'unknown', why: 'time limit' },
  { code: 80, fate: 'unknown', why: 'other' },
  { code: 85, fate: 'unknown', why: 'a code that servers should not send' },
])('a modify answered $code ($why): $fate', ({ code, fate }) => {
  expect(fateOf(fromResultCode(code, 'ldap://d', 'modify'))).toBe(fate)
})

test('a modify that was not sent was not done; one without an answer may have been', () => {
  expect(fateOf(new DirectoryError('unavailable', 'closed'))).toBe('not-done')
  expect(fateOf(new DirectoryError('unknown-outcome', 'silence'))).toBe('unknown')
})
