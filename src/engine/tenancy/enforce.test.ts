import { expect, test } from 'vitest'
import { requireEntry, requireName, requireStaticRole } from './enforce.ts'
import type { TenancyEntry } from './table.ts'

const payments = 'kubernetes:payments'
const entry = (over: Partial<TenancyEntry> = {}): TenancyEntry => ({
  principals: [payments],
  kinds: ['StaticRole'],
  allowedDns: ['OU=Payments,OU=Apps,DC=corp,DC=example'],
  allowedGroupDns: [],
  deniedDns: [],
  minRotationPeriodMs: 0,
  maxTtlMs: 0,
  maxRoles: 0,
  freeRoleNames: false,
  ...over,
})
const claim = {
  name: 'payments/ledger',
  rotationPeriodMs: 3_600_000,
  entryDn: 'cn=svc-ledger,ou=payments,ou=apps,dc=corp,dc=example',
  otherRoles: 0,
}

test.each([
  ['an entry that covers it', [entry()], {}, undefined],
  ['an empty table', [], {}, 'may not have a StaticRole'],
  ['an entry of another tenant', [entry({ principals: ['kubernetes:other'] })], {}, 'may not have a StaticRole'],
  ['an entry of another kind', [entry({ kinds: ['LibrarySet'] })], {}, 'may not have a StaticRole'],
  ['a name without the namespace', [entry()], { name: 'ledger' }, 'must begin with "payments/"'],
  ['a name that only starts like the namespace', [entry()], { name: 'payments-x/ledger' }, 'must begin with'],
  ['a free name', [entry({ freeRoleNames: true })], { name: 'ledger' }, undefined],
  [
    'a period below the least',
    [entry({ minRotationPeriodMs: 7_200_000 })],
    {},
    'rotation_period must be at least 7200',
  ],
  ['a DN outside', [entry()], { entryDn: 'cn=admin,ou=apps,dc=corp,dc=example' }, 'no such account'],
  [
    'a DN that ends like the base but is not below it',
    [entry()],
    { entryDn: 'cn=x,cn=a\\,ou=payments,ou=apps,dc=corp,dc=example' },
    'no such account',
  ],
  ['an entry that is not there', [entry()], { entryDn: undefined }, 'no such account'],
  [
    'a denied DN',
    [entry({ deniedDns: ['cn=SVC-LEDGER, ou=Payments, ou=Apps, dc=corp, dc=example'] })],
    {},
    'no such account',
  ],
  [
    'a DN denied by another entry of the tenant',
    [entry(), entry({ kinds: [], allowedDns: [], deniedDns: ['dc=example'] })],
    {},
    'no such account',
  ],
  ['as many roles as allowed', [entry({ maxRoles: 2 })], { otherRoles: 2 }, 'max_roles'],
  ['one role less than allowed', [entry({ maxRoles: 2 })], { otherRoles: 1 }, undefined],
  ['two entries of which only the second allows all', [entry({ maxRoles: 1 }), entry()], { otherRoles: 5 }, undefined],
])('%s', (_, entries, over, refusal) => {
  const ask = () => requireStaticRole({ entries }, payments, { ...claim, ...over })
  if (refusal === undefined) expect(ask).not.toThrow()
  else expect(ask).toThrow(refusal)
})

test('an absent and a foreign account are refused in the same words', () => {
  const words = (entryDn: string | undefined) => {
    try {
      requireStaticRole({ entries: [entry()] }, payments, { ...claim, entryDn })
    } catch (error) {
      return String(error)
    }
    return 'allowed'
  }
  expect(words('cn=admin,dc=corp,dc=example')).toBe(words(undefined))
  expect(words(undefined)).not.toBe('allowed')
})

test('before a rotation only the kind and the entry count', () => {
  const entries = [entry({ maxRoles: 1, minRotationPeriodMs: 1e9 })]
  expect(() => requireEntry({ entries }, { principal: payments, kind: 'StaticRole' }, claim.entryDn)).not.toThrow()
  expect(() => requireEntry({ entries: [] }, { principal: payments, kind: 'StaticRole' }, claim.entryDn)).toThrow(
    expect.objectContaining({ kind: 'invalid', reason: 'not-permitted' }),
  )
})

test('a name is decided for its kind', () => {
  expect(requireName({ entries: [entry()] }, { principal: payments, kind: 'StaticRole' }, 'payments/x')).toHaveLength(1)
  expect(() => requireName({ entries: [entry()] }, { principal: payments, kind: 'DynamicRole' }, 'payments/x')).toThrow(
    'may not have a DynamicRole',
  )
})
