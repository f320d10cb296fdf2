import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { GROUPS, loginLab, PEOPLE } from '../support/ldap-login.ts'
import { answerTo, entry, OP, type ScriptedHandler, serveScripted } from '../support/scripted-ldap.ts'
import { change, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// LDAP logins against what directories do differently: Active Directory's names and groups, TLS, aliases, pages, no anonymous binds.

let slapd: Slapd
let keyturn: Keyturn
const { mounted, login } = loginLab(() => ({ keyturn, slapd }))
const TEMPLATE = { binddn: '', bindpass: '' }
const UNWILLING = 'ldap operation failed: the directory did not let this user be looked up'

beforeAll(async () => {
  slapd = await startSlapd({ AD: '1', ANON_BIND: '0' })
  keyturn = await startKeyturn()
})
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
})

/** Maps each group to a policy of its own and tells which groups a login brings. */
async function groupsOf(mount: string, groups: readonly string[], username: string, password: string) {
  for (const [i, group] of groups.entries())
    await keyturn.call('POST', `auth/${mount}/groups/${encodeURIComponent(group)}`, { policies: `group-${i}` })
  const answer = await login(mount, username, password)
  expect(answer.status, answer.text).toBe(200)
  return groups.filter((_, i) => answer.body.auth.policies.includes(`group-${i}`))
}

describe('a directory that has nobody anonymous', () => {
  const config = { anonymous_group_search: true, groupdn: GROUPS }

  test('is no wrong password: nobody is locked out', async () => {
    const mount = await mounted({ ...config, ...TEMPLATE })
    for (let i = 0; i < 6; i++) {
      const answer = await login(mount, 'alice', 'alice-secret')
      expect([answer.status, answer.body.errors]).toEqual([400, [UNWILLING]])
    }
    expect((await login(mount, 'alice', 'wrong')).body.errors).toEqual([
      'ldap operation failed: failed to bind as user',
    ])
  })

  test.each([
    ['groups', config],
    ['names', { ...TEMPLATE, discoverdn: true }],
  ])('does not close the mount when asked for %s', async (_, asked) => {
    const mount = await mounted(asked)
    for (let i = 0; i < 2; i++) expect((await login(mount, 'alice', 'alice-secret')).body.errors).toEqual([UNWILLING])
  })
})

describe("Active Directory's names", () => {
  beforeAll(async () => {
    const account = `objectClass: inetOrgPerson\nobjectClass: adAccount\nsn: x\nuserPassword: carla-secret\n`
    const names = 'userPrincipalName: carla@corp.test\nsAMAccountName: carla.sam\n'
    await change(slapd, `dn: cn=Carla,${PEOPLE}\nchangetype: add\ncn: Carla\n${account}${names}`)
  })
  const config = { userattr: 'cn', upndomain: 'corp.test' }

  test('the principal name is what a service looks for', async () => {
    const mount = await mounted(config)
    expect((await login(mount, 'carla', 'carla-secret')).status).toBe(200)
    expect((await login(mount, 'carla.sam', 'carla-secret')).status).toBe(400)
  })

  test('the account name besides, where that is allowed', async () => {
    const mount = await mounted({ ...config, enable_samaccountname_login: true })
    const both = await Promise.all(['carla', 'carla.sam'].map((name) => login(mount, name, 'carla-secret')))
    expect(both.map(({ status }) => status)).toEqual([200, 200])
    expect(new Set(both.map(({ body }) => body.auth.entity_id)).size).toBe(1)
    expect((await login(mount, 'carla.sam', 'wrong')).status).toBe(400)
  })

  test('a filter of its own says all there is to find', async () => {
    const own = { userfilter: '(&(objectClass=adAccount)({{.UserAttr}}={{.Username}}))' }
    const mount = await mounted({ ...config, ...own, enable_samaccountname_login: true })
    expect((await login(mount, 'carla', 'carla-secret')).status).toBe(200)
    expect((await login(mount, 'carla.sam', 'carla-secret')).status).toBe(400)
  })

  test('without an identity of the service the principal name is bound with', async () => {
    const named: ScriptedHandler = (request, socket) => {
      if (request.op === OP.search) socket.write(entry(request.id, 'cn=Carla,dc=corp,dc=test', { cn: ['Carla'] }))
      if (request.op !== OP.unbind) socket.write(answerTo(request))
    }
    await using directory = await serveScripted(named)
    const mount = await mounted({
      ...config,
      ...TEMPLATE,
      url: directory.url,
      userdn: 'dc=corp,dc=test',
      enable_samaccountname_login: true,
    })
    expect((await login(mount, 'carla.sam', 'carla-secret')).status).toBe(200)
    const [bind, search] = directory.requests.map(({ raw }) => raw.toString('latin1'))
    expect(bind).toContain('carla.sam@corp.test')
    expect(search).toMatch(/userPrincipalName.*carla\.sam@corp\.test.*sAMAccountName.*carla\.sam/s)
  })
})

describe('tokenGroups', () => {
  const sid = (n: number) => Buffer.from([1, 1, 0, 0, 0, 0, 0, 5, n & 255, n >> 8, 0, 0]).toString('base64')
  beforeAll(async () => {
    const group = (name: string, n: number) =>
      `dn: cn=${name},${GROUPS}\nchangetype: add\nobjectClass: groupOfNames\nobjectClass: adAccount\ncn: ${name}\nmember: cn=none\nobjectSid:: ${sid(n)}\n\n`
    // More than are asked for at once, most of which are nowhere.
    const sids = Array.from({ length: 120 }, (_, n) => `tokenGroups:: ${sid(n)}`).join('\n')
    const account = `objectClass: inetOrgPerson\nobjectClass: adAccount\nuid: tove\ncn: Tove\nsn: x\nuserPassword: tove-secret`
    await change(
      slapd,
      `${group('direct', 3)}${group('nested', 117)}${group('foreign', 500)}dn: uid=tove,${PEOPLE}\nchangetype: add\n${account}\nobjectSid:: ${sid(900)}\n${sids}\n`,
    )
  })
  const all = ['direct', 'nested', 'foreign']

  test('bring the groups that the directory counted, each by its SID', async () => {
    const mount = await mounted({ groupdn: GROUPS })
    expect(await groupsOf(mount, all, 'tove', 'tove-secret')).toEqual(['direct', 'nested'])
  })

  test('are not asked for where that is turned off', async () => {
    const mount = await mounted({ groupdn: GROUPS, use_token_groups: false })
    expect(await groupsOf(mount, all, 'tove', 'tove-secret')).toEqual([])
  })
})

describe('the group search', () => {
  test("by the entry's own memberOf, whose values are names of groups", async () => {
    const config = { groupdn: PEOPLE, groupfilter: '(uid={{.Username}})', groupattr: 'memberOf' }
    const groups = ['engineers', 'Tier 1, On-Call', 'auditors']
    expect(await groupsOf(await mounted(config), groups, 'bob', 'bob-secret')).toEqual(['engineers', 'Tier 1, On-Call'])
  })

  test('for names beyond ASCII', async () => {
    const group = Buffer.from(`cn=Größe,${GROUPS}`).toString('base64')
    const member = Buffer.from(`uid=josé,${PEOPLE}`).toString('base64')
    const name = Buffer.from('Größe').toString('base64')
    await change(slapd, `dn:: ${group}\nchangetype: add\nobjectClass: groupOfNames\ncn:: ${name}\nmember:: ${member}\n`)
    for (const identity of [{}, TEMPLATE]) {
      const mount = await mounted({ groupdn: GROUPS, ...identity })
      expect(await groupsOf(mount, ['GRÖSSE', 'größe'], 'josé', 'pässwörd-☃')).toEqual(['größe'])
    }
  })

  test('in pages, where the directory gives no more at once', async () => {
    const names = Array.from({ length: 8 }, (_, i) => `paged-${i}`)
    for (const name of names)
      await change(
        slapd,
        `dn: cn=${name},${GROUPS}\nchangetype: add\nobjectClass: groupOfNames\ncn: ${name}\nmember: uid=carol,${PEOPLE}\n`,
      )
    const small = { binddn: `cn=svc-small,ou=services,${SUFFIX}`, bindpass: 'svc-small-secret', groupdn: GROUPS }
    const unpaged = await mounted(small)
    expect((await login(unpaged, 'carol', 'carol-secret')).body.errors).toEqual([UNWILLING])
    const paged = await mounted({ ...small, max_page_size: 3 })
    expect(await groupsOf(paged, names, 'carol', 'carol-secret')).toEqual(names)
  })
})

test.each([
  ['never', 400],
  ['finding', 200],
  ['always', 200],
])('aliases above the people are followed: %s', async (mode, status) => {
  const mount = await mounted({ userdn: `ou=staff,ou=aliases,${SUFFIX}`, dereference_aliases: mode })
  expect((await login(mount, 'alice', 'alice-secret')).status).toBe(status)
})

describe.each([
  ['LDAPS', () => ({ url: slapd.tlsUrl })],
  ['StartTLS', () => ({ starttls: true })],
])('over %s', (_, how) => {
  test.each([
    ['by a search', {}],
    ['by template', TEMPLATE],
  ])('with a CA, %s', async (__, config) => {
    const mount = await mounted({ ...how(), certificate: slapd.ca, groupdn: GROUPS, ...config })
    expect(await groupsOf(mount, ['engineers'], 'alice', 'alice-secret')).toEqual(['engineers'])
    expect((await login(mount, 'alice', 'wrong')).status).toBe(400)
  })

  test('not without it', async () => {
    const mount = await mounted(how())
    expect((await login(mount, 'alice', 'alice-secret')).status).toBe(503)
  })
})
