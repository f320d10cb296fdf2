import { readFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../support/cluster.ts'
import {
  at,
  BULK_DN,
  bindSecret,
  condition,
  engineSpec,
  type Operator,
  read,
  ready,
  resource,
  says,
  secretOf,
  startOperator,
} from '../support/operator.ts'
import { sharedCluster } from '../support/shared-cluster.ts'
import { binds, slapdAvailable } from '../support/slapd.ts'

/** Who may have which account: tenants, conflicts, what was made through the API, and changes of what roles depend on. */

const cluster = sharedCluster()
const ENGINE = 'tenants'
const ALICE = 'uid=alice,ou=people,dc=example,dc=test'

describe.skipIf(!cluster || !slapdAvailable())('tenants of the operator', () => {
  if (!cluster) return
  let operator: Operator
  let namespace: string

  beforeAll(async () => {
    operator = await startOperator(cluster)
    namespace = await operator.namespace({ tenant: 'yes' })
    await operator.engine(ENGINE)
  })
  afterAll(() => operator?.stop())

  const role = (username: string, more: object = {}) => ({
    engineRef: { name: ENGINE },
    username,
    rotationPeriod: '1h',
    output: {},
    ...more,
  })
  const applyRole = (name: string, spec: object, where = namespace) =>
    cluster.apply(resource('LdapStaticRole', name, where, spec))
  const lsr = (name: string, where = namespace) => read(cluster, 'ldapstaticroles', name, where)
  const refused = (reason: string, name: string, where = namespace) =>
    says(cluster, `False ${reason}`, ['ldapstaticroles', name, where])
  const isReady = (name: string, where = namespace) => ready(cluster, 'ldapstaticroles', name, where)
  const messageOf = (object: { status: { conditions: { type: string; message: string }[] } }, type: string) =>
    object.status.conditions.find((one) => one.type === type)?.message ?? ''
  const password = async (name: string, where = namespace) =>
    (await secretOf(cluster, where, name))?.data['password'] ?? ''
  const call = (method: string, path: string, body?: unknown) => operator.server.call(method, path, body)
  const roleIn = async (name: string, engine = ENGINE) => {
    const { status, body, text } = await call('GET', `${engine}/static-role/${name}`)
    if (status !== 200 && status !== 404) throw new Error(`the engine answers ${status}: ${text}`)
    return body.data
  }
  const label = (name: string, labels: Record<string, string | null>) =>
    cluster.request('PATCH', `/api/v1/namespaces/${name}`, JSON.stringify({ metadata: { labels } }), {
      type: 'application/merge-patch+json',
    })
  const patch = (name: string, body: object, where = namespace) =>
    cluster.request('PATCH', at('ldapstaticroles', name, where), JSON.stringify(body), {
      type: 'application/merge-patch+json',
    })

  test('an account outside the allowed DNs is refused, in the same words as one that does not exist', async () => {
    await applyRole('outsider', role('alice', { dn: ALICE }))
    await applyRole('nobody', role('no-such-account', { dn: 'uid=no-such-account,ou=people,dc=example,dc=test' }))
    const outsider = await refused('TargetNotPermitted', 'outsider')
    const nobody = await refused('TargetNotPermitted', 'nobody')
    expect(condition(outsider, 'Accepted')).toBe('False TargetNotPermitted')
    expect(condition(outsider, 'Stalled')).toBeDefined()
    const told = messageOf(outsider, 'Accepted')
    expect(messageOf(nobody, 'Accepted').replaceAll('no-such-account', 'alice')).toBe(told)
    expect(await secretOf(cluster, namespace, 'outsider')).toBeUndefined()
    expect(await roleIn(`${namespace}/outsider`)).toBeUndefined()
    expect(await binds(operator.slapd, ALICE, 'alice-secret')).toBe(true)
  })

  test('the bind account of the engine is nobody’s', async () => {
    const { slapd } = operator
    const allowedDNs = ['dc=example,dc=test']
    const entry = { namespaces: { names: [namespace] }, kinds: ['StaticRole'], allowedDNs }
    await operator.engine('wide', { userDN: 'dc=example,dc=test', tenancy: [entry] })
    const bindDN = String(engineSpec(slapd, '')['bindDN'])
    await applyRole('king', role('svc-manager', { engineRef: { name: 'wide' }, dn: bindDN }))
    await refused('TargetNotPermitted', 'king')
    expect(await binds(slapd, bindDN, 'svc-manager-secret')).toBe(true)
  })

  test('a namespace without an entry is refused; with the label it is let in, without it it is out again', async () => {
    const outside = await operator.namespace()
    const { username, dn } = operator.account()
    await applyRole('app', role(username, { rotationPeriod: '5s' }), outside)
    await refused('NamespaceNotAllowed', 'app', outside)
    expect(await roleIn(`${outside}/app`)).toBeUndefined()
    expect(await binds(operator.slapd, dn, `${username}-secret`)).toBe(true)

    await label(outside, { tenant: 'yes' })
    await isReady('app', outside)
    await label(outside, { tenant: null })
    // It is asked before each rotation: the next one is refused, and the password stays what it is.
    await refused('NamespaceNotAllowed', 'app', outside)
    const kept = await password('app', outside)
    expect(await binds(operator.slapd, dn, kept)).toBe(true)
    const versionOf = async () => (await roleIn(`${outside}/app`)).credential_version
    const before = await versionOf()
    await until(20, 'another refusal', async () => {
      const { last_error: failure } = await roleIn(`${outside}/app`)
      return failure?.class === 'not-permitted'
    })
    expect(await versionOf()).toBe(before)

    await label(outside, { tenant: 'yes' })
    // A rotation that was refused twice is tried again after up to 24 s, one of three times after up to 48 s.
    await says(cluster, 'True Ready', ['ldapstaticroles', 'app', outside], { seconds: 60 })
    await until(10, 'its password', async () => binds(operator.slapd, dn, await password('app', outside)))
  })

  test('a period below the least one and a name of its own are refused where the entry does not allow them', async () => {
    const strict = await operator.namespace({ tenant: 'strict' })
    const entry = {
      namespaces: { names: [strict] },
      kinds: ['StaticRole'],
      allowedDNs: [BULK_DN],
      minRotationPeriod: '1h',
      maxRoles: 1,
    }
    await operator.engine('strict', { tenancy: [entry] })
    const engineRef = { name: 'strict' }
    const account = operator.account()
    await applyRole('fast', role(account.username, { engineRef, rotationPeriod: '59m' }), strict)
    await refused('TargetNotPermitted', 'fast', strict)
    await applyRole('free', role(account.username, { engineRef, roleName: 'shared/name' }), strict)
    await refused('TargetNotPermitted', 'free', strict)
    await applyRole('fine', role(account.username, { engineRef }), strict)
    await isReady('fine', strict)
    await applyRole('more', role(operator.account().username, { engineRef }), strict)
    await refused('TargetNotPermitted', 'more', strict)
    expect(messageOf(await lsr('more', strict), 'Accepted')).toMatch(/1 role|at most 1|maxRoles|max_roles/)
  })

  test('two objects for one account: the older has it, and when it goes the other takes over', async () => {
    const { username, dn } = operator.account()
    await applyRole('elder', role(username))
    await isReady('elder')
    await applyRole('younger', role(username))
    const loser = await refused('NameConflict', 'younger')
    expect(condition(loser, 'Accepted')).toBe('False NameConflict')
    expect(await secretOf(cluster, namespace, 'younger')).toBeUndefined()
    // Two names for one entry are one account.
    await applyRole('by-dn', role('another-name', { dn: dn.toUpperCase().replaceAll(',', ', ') }))
    await refused('NameConflict', 'by-dn')
    expect(condition(await lsr('elder'))).toBe('True Ready')

    await cluster.request('DELETE', at('ldapstaticroles', 'by-dn', namespace))
    await cluster.request('DELETE', at('ldapstaticroles', 'elder', namespace))
    await isReady('younger')
    expect(await binds(operator.slapd, dn, await password('younger'))).toBe(true)
    await until(20, 'the end of the older Secret', async () => (await password('elder')) === '')
  })

  test('a tenant cannot take the account of another, and is not told whose it is', async () => {
    const other = await operator.namespace({ tenant: 'yes' })
    const { username } = operator.account()
    await applyRole('mine', role(username))
    await isReady('mine')
    await applyRole('thief', role(username), other)
    const thief = await refused('NameConflict', 'thief', other)
    expect(JSON.stringify(thief.status)).not.toContain(namespace)
    expect(JSON.stringify(thief.status)).not.toContain('mine')
  })

  test('a role that was applied before its engine converges by itself', async () => {
    const { username, dn } = operator.account()
    await applyRole('early', role(username, { engineRef: { name: 'late' } }))
    await refused('EngineNotFound', 'early')
    // The engine comes before its password, too.
    await cluster.apply(resource('LdapEngine', 'late', undefined, engineSpec(operator.slapd, 'late-bind')))
    await says(cluster, 'False SecretNotFound', ['ldapengines', 'late'])
    await bindSecret(cluster, 'late-bind')
    await ready(cluster, 'ldapengines', 'late')
    await isReady('early')
    expect(await binds(operator.slapd, dn, await password('early'))).toBe(true)
  })

  test('a role made through the API is refused, or adopted without rotating', async () => {
    const { username, dn } = operator.account()
    const name = `${namespace}/adopted`
    const made = await call('POST', `${ENGINE}/static-role/${name}`, { username, rotation_period: '2h' })
    expect(made.status, made.text).toBeLessThan(300)
    const { password: before } = (await call('GET', `${ENGINE}/static-cred/${name}`)).body.data
    await applyRole('adopted', role(username))
    await refused('OwnedByApi', 'adopted')
    expect(await secretOf(cluster, namespace, 'adopted')).toBeUndefined()

    await patch('adopted', { spec: { adoptionPolicy: 'Adopt' } })
    await isReady('adopted')
    expect(await password('adopted')).toBe(before)
    expect(await binds(operator.slapd, dn, before)).toBe(true)
    const uid = (await lsr('adopted')).metadata.uid
    expect(await roleIn(name)).toMatchObject({ credential_version: 1, rotation_period: 3600, owner: `cr:${uid}` })
  })

  test('writes through the API to what a resource owns are refused and name it; reading and rotating stay open', async () => {
    const { username, dn } = operator.account()
    await applyRole('owned', role(username))
    await isReady('owned')
    const name = `${namespace}/owned`
    for (const [method, body] of [
      ['POST', { rotation_period: '3h' }],
      ['DELETE', undefined],
    ] as const) {
      const answer = await call(method, `${ENGINE}/static-role/${name}`, body)
      expect(answer.status).toBe(400)
      expect(answer.body.errors.join()).toMatch(/resource|LdapStaticRole/)
      expect(answer.body.errors.join()).toContain((await lsr('owned')).metadata.uid)
    }
    const config = await call('POST', `${ENGINE}/config`, { userdn: 'dc=example,dc=test' })
    expect(config.status).toBe(400)
    expect((await call('GET', `${ENGINE}/static-cred/${name}`)).status).toBe(200)
    expect((await call('POST', `${ENGINE}/rotate-role/${name}`)).status).toBeLessThan(300)
    await until(10, 'the new password', async () => binds(operator.slapd, dn, await password('owned')))
    expect(condition(await lsr('owned'))).toBe('True Ready')
  })

  test('a changed bind Secret replaces one that works only when it binds, once, and is not put back afterwards', async () => {
    await operator.engine('rebound')
    const { username, dn } = operator.account()
    await applyRole('after', role(username, { engineRef: { name: 'rebound' } }))
    await isReady('after')
    const writes = () =>
      readFileSync(path.join(operator.server.dataDir, 'audit.log'), 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line))
        .filter((line) => line.type === 'request' && line.request.path === 'rebound/config')
        .filter(({ request }) => request.operation === 'write').length
    const turn = async () => (await call('POST', `rebound/rotate-role/${namespace}/after`)).status
    const look = async (value: string) => {
      await cluster.request(
        'PATCH',
        at('ldapengines', 'rebound'),
        JSON.stringify({ metadata: { annotations: { 'keyturn.dev/reconcile-requested-at': value } } }),
        { type: 'application/merge-patch+json' },
      )
      await until(10, 'the look', async () => {
        const { status } = await read(cluster, 'ldapengines', 'rebound')
        return status.lastHandledReconcileRequest === value
      })
    }
    const isCurrent = async () => binds(operator.slapd, dn, await password('after'))
    expect(writes()).toBe(1)
    await bindSecret(cluster, 'rebound-bind', 'not-the-password')
    const told = await says(cluster, 'False BindFailed', ['ldapengines', 'rebound'])
    expect(condition(told, 'RootCredential')).toBe('False BindFailed')
    expect(JSON.stringify(told.status)).not.toContain('not-the-password')
    expect(await turn()).toBeLessThan(300)
    await until(10, 'the new password', isCurrent)
    expect(condition(await lsr('after'))).toBe('True Ready')
    // It is not presented again for whatever reason it is looked at.
    await look('refused')
    expect(writes()).toBe(2)

    await bindSecret(cluster, 'rebound-bind')
    await ready(cluster, 'ldapengines', 'rebound')
    expect(await turn()).toBeLessThan(300)
    await until(10, 'the new password', isCurrent)
    // A change of anything else does not bring it back: the engine may have turned its own password since.
    await look('right')
    // The right one was in force all the time.
    expect(writes()).toBe(2)
  })

  test('a suspended role is left alone and resumes', async () => {
    const { username, dn } = operator.account()
    await applyRole('paused', role(username))
    await isReady('paused')
    await patch('paused', { spec: { suspend: true } })
    await until(10, 'the suspension', async () => condition(await lsr('paused'), 'Suspended') === 'True Suspended')
    expect((await call('POST', `${ENGINE}/rotate-role/${namespace}/paused`)).status).toBeLessThan(300)
    await patch('paused', { spec: { suspend: false } })
    await until(10, 'the new password', async () => binds(operator.slapd, dn, await password('paused')))
    await until(10, 'the end of the suspension', async () => {
      const object = await lsr('paused')
      return condition(object, 'Suspended') === undefined && condition(object) === 'True Ready'
    })
  })

  test('deleted by force while the engine is away, the object goes; its role is taken up again when asked to', async () => {
    const { username, dn } = operator.account()
    await applyRole('forced', role(username))
    await isReady('forced')
    const before = await password('forced')
    const remove = () => cluster.request('DELETE', at('ldapstaticroles', 'forced', namespace))
    await operator.server.end('SIGKILL')
    try {
      await remove()
      await until(10, 'the obstacle to be told', async () => {
        const object = await lsr('forced')
        return object?.status.conditions.some((one: { type: string }) => one.type === 'Deleting')
      })
      await patch('forced', { metadata: { annotations: { 'keyturn.dev/force-delete': 'true' } } })
      await until(10, 'the end of the object', async () => (await lsr('forced')) === undefined)
    } finally {
      await operator.server.again()
    }
    await applyRole('forced', role(username))
    const heir = await refused('NameConflict', 'forced')
    expect(messageOf(heir, 'Accepted')).toContain('adoptionPolicy: Adopt')
    await patch('forced', { spec: { adoptionPolicy: 'Adopt' } })
    await isReady('forced')
    expect(await password('forced')).toBe(before)
    expect(await binds(operator.slapd, dn, before)).toBe(true)
    await remove()
    await until(10, 'the end of the role', async () => (await roleIn(`${namespace}/forced`)) === undefined)
  })
})
