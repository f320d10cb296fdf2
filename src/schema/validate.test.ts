import { expect, test } from 'vitest'
import { SAMPLES } from '../../test/support/spec-samples.ts'
import { findKind } from './kinds.ts'
import { LdapStaticRole } from './ldap-static-role.ts'
import { readSpec } from './validate.ts'

test.each(SAMPLES)('$kind: $title', ({ kind, spec, old, refused }) => {
  const found = findKind(kind)
  if (!found) throw new Error(kind)
  const reading = readSpec(found, spec, { strict: true, ...(old !== undefined && { old }) })
  if (refused === undefined) expect(reading).toHaveProperty('spec')
  else expect('problems' in reading ? reading.problems.join('; ') : 'accepted').toContain(refused)
})

test('a misspelt field is named beside the one that it leaves out', () => {
  const spec = { engineRef: {}, usernme: 'x', rotationPeriod: 5 }
  const reading = readSpec(LdapStaticRole, spec, { strict: true })
  expect('problems' in reading && reading.problems).toEqual([
    'spec.engineRef.name: is required',
    'spec.username: is required',
    expect.stringMatching(/^spec\.rotationPeriod: .*string/),
    'spec.usernme: unknown field',
  ])
})

test('durations become milliseconds, and the manifest keeps its spelling', () => {
  const spec = { engineRef: { name: 'corp' }, username: 'a', rotationPeriod: '1d12h' }
  expect(readSpec(LdapStaticRole, spec)).toMatchObject({ spec: { rotationPeriod: 36 * 3_600_000 } })
  expect(spec.rotationPeriod).toBe('1d12h')
})

test('fields of a newer version do not keep a controller from reading the rest', () => {
  const spec = { engineRef: { name: 'corp' }, username: 'a', rotationPeriod: '1h', fromTheFuture: 1 }
  expect(readSpec(LdapStaticRole, spec)).toHaveProperty('spec')
})
