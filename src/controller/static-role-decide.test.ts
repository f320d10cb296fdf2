import { describe, expect, test } from 'vitest'
import {
  accountStatement,
  adoptionChanges,
  credentialStatement,
  decideRole,
  type EngineRole,
  engineRole,
} from './static-role-decide.ts'

const mine: EngineRole = {
  owner: 'cr:1',
  username: 'a',
  dn: '',
  rotationPeriodMs: 3_600_000,
  resolvedDN: 'cn=a',
  credentialVersion: 2,
  lastRotation: new Date('2026-01-01T00:00:00Z'),
  nextRotation: new Date('2026-01-01T01:00:00Z'),
  failure: undefined,
}
const spec = { username: 'a', rotationPeriod: 3_600_000 }
const account = { username: 'a', rotation_period: 3600 }

describe('what is written to the engine', () => {
  test.each([
    { title: 'nothing there', want: { write: account, why: 'create' } },
    { title: 'with dn', more: { dn: 'cn=a' }, want: { write: { ...account, dn: 'cn=a' }, why: 'create' } },
    {
      title: 'skip given',
      more: { skipImportRotation: false },
      want: { write: { ...account, skip_import_rotation: false }, why: 'create' },
    },
    { title: 'all the same', seen: mine, want: { write: undefined } },
    { title: 'skip is not sent again', seen: mine, more: { skipImportRotation: true }, want: { write: undefined } },
    {
      title: 'other period',
      seen: { ...mine, rotationPeriodMs: 1 },
      want: { write: { rotation_period: 3600 }, why: 'update' },
    },
    {
      title: "somebody else's",
      seen: { ...mine, owner: 'cr:2' },
      want: { refuse: { type: 'Accepted', reason: 'NameConflict' } },
    },
    {
      title: "somebody else's, adopting",
      seen: { ...mine, owner: 'cr:2' },
      more: { adoptionPolicy: 'Adopt' as const },
      want: { refuse: { reason: 'NameConflict' } },
    },
    { title: "the API's", seen: { ...mine, owner: '' }, want: { refuse: { type: 'Synced', reason: 'OwnedByApi' } } },
    {
      title: "the API's, adopting",
      seen: { ...mine, owner: '' },
      more: { adoptionPolicy: 'Adopt' as const },
      want: { write: { ...account, adopt: true }, why: 'adopt' },
    },
  ])('$title', ({ seen, more, want }) => {
    expect(decideRole({ ...spec, ...more }, seen, 'cr:1', (owner) => owner === 'cr:gone')).toMatchObject(want)
  })
})

test.each([
  { role: mine, want: ['True', 'Rotated'] },
  { role: { ...mine, lastRotation: undefined }, want: ['True', 'Imported'] },
  { role: { ...mine, credentialVersion: 0 }, want: ['False', 'PasswordNotYetKnown'] },
  { role: { ...mine, failure: { class: 'bind-refused', message: 'm' } }, want: ['False', 'BindFailed'] },
  { role: { ...mine, failure: { class: 'refused', message: 'm' } }, want: ['False', 'RotationFailed'] },
  { role: { ...mine, failure: { class: 'unavailable', message: 'm' } }, want: ['False', 'RotationFailed'] },
])('the credential is $want', ({ role, want }) => {
  const { status, reason } = credentialStatement(role)
  expect([status, reason]).toEqual(want)
})

test('a failure may say something about the object itself', () => {
  const failed = (failureClass: string) => accountStatement({ ...mine, failure: { class: failureClass, message: 'm' } })
  expect(failed('not-permitted')).toMatchObject({ type: 'Accepted', reason: 'TargetNotPermitted' })
  expect(failed('absent')).toMatchObject({ type: 'Synced', reason: 'EntryNotFound' })
  expect(failed('unavailable')).toBeUndefined()
})

test('the engine answers in its own spelling', () => {
  const read = engineRole({
    owner: 'cr:1',
    username: 'a',
    dn: 'cn=x',
    rotation_period: 60,
    credential_version: 3,
    last_service_rotation: '2026-01-01T00:00:00Z',
    next_rotation: '2026-01-01T00:01:00Z',
    last_error: { class: 'refused', message: 'm', count: 2 },
  })
  expect(read).toEqual({
    owner: 'cr:1',
    username: 'a',
    dn: 'cn=x',
    rotationPeriodMs: 60_000,
    resolvedDN: 'cn=x',
    credentialVersion: 3,
    lastRotation: new Date('2026-01-01T00:00:00Z'),
    nextRotation: new Date('2026-01-01T00:01:00Z'),
    failure: { class: 'refused', message: 'm' },
  })
  expect(engineRole({})).toMatchObject({ owner: '', credentialVersion: 0, lastRotation: undefined, failure: undefined })
})

test('who takes a role over is told what changes of it', () => {
  expect(adoptionChanges(mine, spec)).toBe('nothing changes')
  expect(adoptionChanges({ ...mine, dn: 'cn=a' }, { username: 'b', dn: 'cn=b', rotationPeriod: 60_000 })).toBe(
    'username: "a" → "b", dn: "cn=a" → "cn=b", rotation_period: "3600s" → "60s"',
  )
})
