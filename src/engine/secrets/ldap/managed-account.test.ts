import { expect, test } from 'vitest'
import { Secret } from '../../../lib/secret.ts'
import { givenIdentities, isBindAccount } from './managed-account.ts'
import type { EngineConfig } from './records.ts'

const config = (bindDN: string, more: Partial<EngineConfig> = {}): EngineConfig => ({
  urls: ['ldap://d'],
  schema: 'ad',
  userAttr: 'sAMAccountName',
  bindDN,
  bindPassword: new Secret('x'),
  ...more,
})

test.each([
  ['CN=svc,DC=corp', { username: 'x', dn: 'cn=SVC, dc=corp' }, true],
  ['CN=svc,DC=corp', { username: 'cn=svc,dc=corp' }, true],
  ['CN=svc,DC=corp', { username: 'svc' }, false],
  ['svc@corp.example', { username: 'svc' }, true],
  ['svc@corp.example', { username: 'SVC@corp.example' }, true],
  ['CORP\\svc', { username: 'svc' }, true],
  ['CORP\\svc', { username: 'Svc@corp.example' }, true],
  ['svc', { username: 'corp\\svc' }, true],
  ['svc@corp.example', { username: 'svc2' }, false],
  ['svc@corp.example', { username: 'other', dn: 'CN=other,DC=corp' }, false],
])('bound as %s, a role for %o is for the own account: %s', (bindDN, role, own) => {
  expect(isBindAccount(config(bindDN), givenIdentities(config(bindDN), role))).toBe(own)
})
