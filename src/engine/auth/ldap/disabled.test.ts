import { expect, test } from 'vitest'
import type { Entry } from '../../directory/directory.ts'
import { isDisabled } from './disabled.ts'

function entryOf(values: Readonly<Record<string, string>>): Entry {
  const attributes = new Map(Object.entries(values).map(([name, value]) => [name.toLowerCase(), [Buffer.from(value)]]))
  const all = (name: string) => (attributes.get(name.toLowerCase()) ?? []).map(String)
  return { dn: 'cn=a', attributes, all, first: (name) => all(name)[0] }
}
const now = new Date('2026-01-02T00:00:00Z')
/** As Active Directory counts. */
const filetime = (date: string) => String((BigInt(Date.parse(date)) - BigInt(Date.UTC(1601, 0, 1))) * 10_000n)

test.each([
  [{}, false],
  [{ userAccountControl: '512' }, false],
  [{ userAccountControl: '514' }, true],
  [{ userAccountControl: '66050' }, true],
  [{ accountExpires: '0' }, false],
  [{ accountExpires: '9223372036854775807' }, false],
  [{ accountExpires: filetime('2026-01-01T00:00:00Z') }, true],
  [{ accountExpires: filetime('2026-01-03T00:00:00Z') }, false],
  [{ pwdAccountLockedTime: '000001010000Z' }, true],
  [{ pwdAccountLockedTime: '20260101000000Z' }, true],
  [{ nsAccountLock: 'TRUE' }, true],
  [{ nsAccountLock: 'true' }, true],
  [{ nsAccountLock: 'false' }, false],
])('%j: %s', (values, want) => {
  expect(isDisabled(entryOf(values), now)).toBe(want)
})

test('no entry was read: nothing is known against it', () => {
  expect(isDisabled(undefined, now)).toBe(false)
})
