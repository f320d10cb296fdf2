import { expect, test } from 'vitest'
import { Secret } from '../../lib/secret.ts'
import type { AccountState } from './account.ts'
import { isProven, restoreId } from './restored.ts'

const mark = { at: new Date('2026-01-02T00:00:00Z'), version: 1_000 }
const [before, after] = [new Date('2026-01-01T00:00:00Z'), new Date('2026-01-03T00:00:00Z')]
const password = new Secret('p')
const account = (more: Partial<AccountState>): AccountState => ({ credentialVersion: 1, ...more })

test.each<[string, AccountState, boolean]>([
  ['of before', account({ confirmed: { password, since: before, basedOn: 900 } }), false],
  ['of before, by a clock that was ahead', account({ confirmed: { password, since: after, basedOn: 900 } }), false],
  ['of a version that did not note it', account({ confirmed: { password, since: after } }), false],
  ['promoted since', account({ confirmed: { password, since: after, basedOn: 1_001 } }), true],
  [
    'promoted since, by a clock that is behind',
    account({ confirmed: { password, since: before, basedOn: 1_001 } }),
    true,
  ],
  ['proven since', account({ confirmed: { password, since: before }, provenAfter: restoreId(mark) }), true],
  [
    'proven after an earlier restore',
    account({ confirmed: { password, since: before }, provenAfter: 'earlier' }),
    false,
  ],
  [
    'known to be another',
    account({ confirmed: { password, since: after, basedOn: 1_001 }, driftedSince: after }),
    false,
  ],
  ['not there', account({}), true],
])('after a restore, a password %s', (_, state, want) => {
  expect(isProven(state, mark)).toBe(want)
})

test('without a restore every password is served that did not drift', () => {
  expect(isProven(account({ confirmed: { password, since: before } }), undefined)).toBe(true)
  expect(isProven(account({ confirmed: { password, since: before }, driftedSince: after }), undefined)).toBe(false)
})
