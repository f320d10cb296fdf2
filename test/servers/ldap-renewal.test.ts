import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { GROUPS, loginLab, PEOPLE, READER } from '../support/ldap-login.ts'
import { change, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// Renewing tokens of LDAP logins: the user is asked for again.

let slapd: Slapd
let keyturn: Keyturn
const groups = GROUPS
const { mounted, login, renew } = loginLab(() => ({ keyturn, slapd }))

beforeAll(async () => {
  slapd = await startSlapd({ PPOLICY: '1' })
  keyturn = await startKeyturn()
})
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
})

/** A user of its own for a test. */
async function person(name: string): Promise<string> {
  const dn = `uid=${name},${PEOPLE}`
  const entry = `objectClass: inetOrgPerson\nuid: ${name}\ncn: ${name}\nsn: x\nuserPassword: ${name}-secret\n`
  await change(slapd, `dn: ${dn}\nchangetype: add\n${entry}`)
  return dn
}
async function tokenOf(mount: string, name: string): Promise<string> {
  const answer = await login(mount, name, `${name}-secret`)
  expect(answer.status, answer.text).toBe(200)
  return answer.body.auth.client_token
}
const TEMPLATE = { binddn: '', bindpass: '' }

test('a token is renewed by looking its user up again, and refused when the policies changed', async () => {
  const path = await mounted({ groupdn: groups, token_ttl: '1h' })
  await keyturn.call('POST', `auth/${path}/groups/engineers`, { policies: 'staff' })
  const { client_token: token } = (await login(path, 'alice', 'alice-secret')).body.auth
  expect((await keyturn.call('POST', 'auth/token/renew-self', {}, { token })).status).toBe(200)
  await keyturn.call('POST', `auth/${path}/groups/engineers`, { policies: 'admins' })
  const refused = await keyturn.call('POST', 'auth/token/renew-self', {}, { token })
  expect(refused.status).toBe(400)
  expect(refused.text).toContain('policies have changed')
})

describe.each([
  ['with an identity of the service', {}],
  ["with the user's own password", TEMPLATE],
])('%s', (_, config) => {
  test('a user who has vanished is refused', async () => {
    const mount = await mounted(config)
    const dn = await person('leaver')
    const token = await tokenOf(mount, 'leaver')
    expect((await renew(token)).status).toBe(200)
    await change(slapd, `dn: ${dn}\nchangetype: delete\n`)
    const refused = await renew(token)
    expect([refused.status, refused.body.errors]).toEqual([400, ['ldap operation failed: failed to bind as user']])
  })

  test('a user who is disabled is refused, and served again once enabled', async () => {
    const mount = await mounted(config)
    const dn = await person('sleeper')
    const token = await tokenOf(mount, 'sleeper')
    const set = (change: string) => `dn: ${dn}\nchangetype: modify\n${change}\n`
    const policy = `add: pwdPolicySubentry\npwdPolicySubentry: cn=strict,ou=policies,${SUFFIX}\n-\n`
    await change(slapd, set(`${policy}add: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z`))
    expect((await login(mount, 'sleeper', 'sleeper-secret')).status).toBe(400)
    expect((await renew(token)).status).toBe(400)
    await change(slapd, set('delete: pwdAccountLockedTime'))
    expect((await renew(token)).status).toBe(200)
    await change(slapd, `dn: ${dn}\nchangetype: delete\n`)
  })
})

test('with no identity of the service any more and no password kept, nothing is proved and nothing renewed', async () => {
  const mount = await mounted({ username_as_alias: true, use_token_groups: false })
  const token = await tokenOf(mount, 'carol')
  expect((await renew(token)).status).toBe(200)
  await keyturn.call('POST', `auth/${mount}/config`, TEMPLATE)
  const refused = await renew(token)
  expect([refused.status, refused.body.errors]).toEqual([
    400,
    ['the login method changed since this login: log in again'],
  ])
  await keyturn.call('POST', `auth/${mount}/config`, READER)
  expect((await renew(token)).status).toBe(200)
})

test('the limits are those of the configuration now', async () => {
  const mount = await mounted({ token_ttl: '1h' })
  const token = await tokenOf(mount, 'carol')
  const lasts = async () => (await renew(token)).body.auth.lease_duration
  expect(await lasts()).toBe(3600)
  await keyturn.call('POST', `auth/${mount}/config`, { token_max_ttl: '30m', token_ttl: '30m' })
  const most = await lasts()
  expect(most).toBeLessThanOrEqual(1800)
  expect(most).toBeGreaterThan(1700)
  await keyturn.call('POST', `auth/${mount}/config`, { token_max_ttl: 0, token_ttl: 0, token_period: '2h' })
  expect(await lasts()).toBe(7200)
})
