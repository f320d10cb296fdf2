import { expect, test } from 'vitest'
import { tenancyBody, tenancyValues } from './table.ts'

const whole = {
  principals: ['kubernetes:payments'],
  kinds: ['StaticRole'],
  allowed_dns: ['OU=Payments,DC=corp'],
  allowed_group_dns: [],
  denied_dns: ['cn=root,OU=Payments,DC=corp'],
  min_rotation_period: '1h',
  max_ttl: 86400,
  max_roles: 200,
  free_role_names: true,
}

test('what is written comes back, durations in seconds', () => {
  const { value, unknown } = tenancyBody.parse({ entries: [whole], other: 1 })
  expect(unknown).toEqual(['other'])
  expect(tenancyValues({ entries: value.entries ?? [] })).toEqual({
    entries: [{ ...whole, min_rotation_period: 3600 }],
  })
})

test('a request without a table is read as one', () => {
  expect(tenancyBody.parse({})).toEqual({ value: {}, unknown: [] })
})

test.each([
  ['x', 'entries: must be a list'],
  [[7], 'entries[0] must be an object'],
  [[{ ...whole, principals: [] }], 'entries[0].principals must name'],
  [[{ ...whole, principals: ['payments'] }], 'must be kubernetes:<namespace>'],
  [[{ ...whole, kinds: ['Role'] }], '"Role" must be one of'],
  [[{ ...whole, allowed_dns: ['payments'] }], 'entries[0].allowed_dns: "payments" is not a DN'],
  [[{ ...whole, allowed_dns: [''] }], 'entries[0].allowed_dns: "" is not a DN'],
  // Split at its commas it would allow all of dc=corp.
  [[{ ...whole, allowed_dns: 'OU=Payments,DC=corp' }], 'entries[0].allowed_dns must be a list'],
  [[{ ...whole, denied_dns: ['a,b'] }], 'entries[0].denied_dns'],
  [[whole, { ...whole, min_rotation_period: 'x' }], 'min_rotation_period'],
  [[{ ...whole, denied_dn: ['dc=corp'] }], 'entries[0]: unknown field denied_dn'],
])('refuses %j', (entries, fragment) => {
  expect(() => tenancyBody.parse({ entries })).toThrow(fragment)
})
