import { request } from 'undici'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { clusterAvailable, type StartedCluster, startCluster, until } from '../support/cluster.ts'
import {
  CENTRAL,
  condition,
  type Operator,
  read,
  resource,
  says,
  secretOf,
  startOperator,
  watchSecrets,
} from '../support/operator.ts'
import { freePort } from '../support/ports.ts'
import { binds, slapdAvailable } from '../support/slapd.ts'

/** Processes die, freeze and change places: nothing is rotated or written for it, and every Secret ends with the password that binds. */

const ENGINE = 'corp'

describe.skipIf(!clusterAvailable() || !slapdAvailable())('the operator through outages', () => {
  let cluster: StartedCluster
  let operator: Operator
  let namespace: string

  beforeAll(async () => {
    cluster = await startCluster()
    operator = await startOperator(cluster)
    namespace = await operator.namespace({ tenant: 'yes' })
    await operator.engine(ENGINE)
  })
  afterAll(async () => {
    await operator?.stop()
    await cluster?.stop()
  })

  const role = (username: string, more: object = {}) => ({
    engineRef: { name: ENGINE },
    username,
    rotationPeriod: '1h',
    output: {},
    ...more,
  })
  const readyRole = async (name: string, more: object = {}, seconds = 20) => {
    const account = operator.account()
    await cluster.apply(resource('LdapStaticRole', name, namespace, role(account.username, more)))
    await says(cluster, 'True Ready', ['ldapstaticroles', name, namespace], { seconds })
    return account
  }
  const lsr = (name: string) => read(cluster, 'ldapstaticroles', name, namespace)
  const secret = (name: string) => secretOf(cluster, namespace, name)
  const roleIn = async (name: string) =>
    (await operator.server.call('GET', `${ENGINE}/static-role/${namespace}/${name}`)).body?.data
  const rotate = (name: string) =>
    operator.server.call('POST', `${ENGINE}/rotate-role/${namespace}/${name}`).then(({ status }) => status)
  /** Who holds the Lease, without the part that tells one life of a process from another. */
  const holder = async () => {
    const path = `/apis/coordination.k8s.io/v1/namespaces/${CENTRAL}/leases/keyturn-controller`
    const { body } = await cluster.request('GET', path)
    return (body?.spec?.holderIdentity as string | undefined)?.replace(/_[0-9a-f]{8}$/, '')
  }
  const leads = (identity: string, seconds = 25) =>
    until(seconds, `${identity} to lead`, async () => (await holder()) === identity)
  /** Waits until whoever leads has looked at the object. */
  const looked = async (name: string, value: string) => {
    const patch = JSON.stringify({ metadata: { annotations: { 'keyturn.dev/reconcile-requested-at': value } } })
    const where = `/apis/keyturn.dev/v1alpha1/namespaces/${namespace}/ldapstaticroles/${name}`
    await cluster.request('PATCH', where, patch, { type: 'application/merge-patch+json' })
    await until(30, `a look at ${name}`, async () => (await lsr(name)).status.lastHandledReconcileRequest === value)
  }
  /**
   * The status is written after the Secret, and again when it tells the time of one rotation and the version of the next, for the role is
   * read before its password. After this nothing is left to write.
   */
  const settles = (name: string, dn: string, seconds = 45) =>
    until(seconds, `the Secret ${name} to hold the password that binds, and the status to say so`, async () => {
      const { credential_version: version, last_service_rotation: since } = (await roleIn(name)) ?? {}
      const written = await secret(name)
      if (written?.metadata.annotations['keyturn.dev/credential-version'] !== String(version)) return false
      const object = await lsr(name)
      const { credentialVersion, lastRotationTime } = object.status
      if (condition(object) !== 'True Ready' || credentialVersion !== version) return false
      // Whole seconds there.
      if (Date.parse(lastRotationTime) !== Math.floor(Date.parse(since) / 1000) * 1000) return false
      return binds(operator.slapd, dn, written?.data['password'] ?? '')
    })

  test('the controller killed and started again rotates nothing and writes nothing', async () => {
    const names = ['a', 'b', 'c']
    for (const name of names) await readyRole(name)
    const versions = async () => Promise.all(names.map(async (name) => (await secret(name))?.metadata.resourceVersion))
    const statuses = async () => Promise.all(names.map(async (name) => (await lsr(name)).metadata.resourceVersion))
    const before = [await versions(), await statuses()]
    await operator.controller.kill()
    const from = performance.now()
    operator.controller = await operator.startController('second')
    // The dead one's Lease runs out by itself.
    await leads('second', 30)
    console.log(`measured: leader killed -> the next one leads: ${(performance.now() - from).toFixed(0)} ms`)
    await until(20, 'everything to be looked at', () =>
      names.every((name) => operator.controller.output.includes(`"key":"${namespace}/${name}"`)),
    )
    expect([await versions(), await statuses()]).toEqual(before)
    for (const name of names) expect(await roleIn(name)).toMatchObject({ credential_version: 1 })
    // What happened while nobody looked is made up for.
    await looked('a', 'after-restart')
  })

  test('a rotation while no controller runs reaches the Secret when one comes', async () => {
    const { dn } = await readyRole('missed')
    await operator.controller.kill('SIGTERM')
    expect(await rotate('missed')).toBeLessThan(300)
    expect(await rotate('missed')).toBeLessThan(300)
    operator.controller = await operator.startController('third')
    await settles('missed', dn)
    expect(await roleIn('missed')).toMatchObject({ credential_version: 3 })
  })

  test('the lead goes over in under 3 s at a graceful stop, to one that was ready and had written nothing', async () => {
    const old = operator.controller
    const port = await freePort()
    operator.controller = await operator.startController('fourth', ['--health-port', String(port)])
    await until(10, 'the standby to be ready', async () => {
      const answer = await request(`http://127.0.0.1:${port}/readyz`).catch(() => undefined)
      await answer?.body.dump()
      return answer?.statusCode === 200
    })
    expect(await holder()).toBe('third')
    expect(operator.controller.output).not.toContain('reconciled')
    const from = performance.now()
    const gone = old.kill('SIGTERM')
    await leads('fourth', 10)
    const ms = performance.now() - from
    await gone
    console.log(`measured: leader stopped -> the next one leads: ${ms.toFixed(0)} ms`)
    expect(ms).toBeLessThan(3_000)
    const { dn } = await readyRole('handed-over')
    expect(await rotate('handed-over')).toBeLessThan(300)
    await settles('handed-over', dn)
  })

  test('a leader frozen for longer than its Lease writes nothing when it wakes up', async () => {
    const names = Array.from({ length: 20 }, (_, at) => `frozen-${at}`)
    const accounts = new Map<string, string>()
    for (const name of names) accounts.set(name, (await readyRole(name)).dn)
    const old = operator.controller
    const leader = await holder()
    operator.controller = await operator.startController('fifth')
    // The Secrets of these rotations hang in an API server that does not answer, when the process that would write them stands still.
    cluster.freeze('kube-apiserver')
    for (const status of await Promise.all(names.map(rotate))) expect(status).toBeLessThan(300)
    let ended = -1
    await until(5, 'the leader to hang', async () => {
      const before = ended
      ended = old.output.split('"controller":"LdapStaticRole"').length
      if (ended !== before) await new Promise((resolve) => setTimeout(resolve, 200))
      return ended === before
    })
    old.signal('SIGSTOP')
    cluster.thaw('kube-apiserver')
    expect(await holder()).toBe(leader)
    await leads('fifth', 40)
    for (const status of await Promise.all(names.map(rotate))) expect(status).toBeLessThan(300)
    for (const name of names) {
      await settles(name, accounts.get(name) ?? '')
      expect(await roleIn(name)).toMatchObject({ credential_version: 3 })
    }
    const states = async () =>
      Promise.all(names.flatMap((name) => [secret(name), lsr(name)])).then((objects) =>
        objects.map((object) => object?.metadata.resourceVersion),
      )
    const settled = await states()
    const woken = Date.now()
    old.signal('SIGCONT')
    await until(40, 'the old leader to know', () => old.output.includes('no longer leader'))
    expect(await states()).toEqual(settled)
    const writes = cluster.audit().filter(({ user, verb, objectRef, requestReceivedTimestamp }) => {
      const isRead = ['get', 'list', 'watch'].includes(verb)
      const isOurs = user?.username === 'operator' && !['leases', 'events'].includes(objectRef?.resource)
      return isOurs && !isRead && Date.parse(requestReceivedTimestamp) >= woken
    })
    expect(writes.map(({ verb, requestURI }) => `${verb} ${requestURI}`)).toEqual([])
    expect(await holder()).toBe('fifth')
    await old.kill('SIGTERM')
  })

  test('the engine killed in the middle of rotations: each Secret ends with the password that binds', async () => {
    const names = ['k0', 'k1', 'k2', 'k3']
    const accounts = new Map<string, string>()
    for (const name of names) accounts.set(name, (await readyRole(name, { rotationPeriod: '5s' })).dn)
    for (const delayMs of [3, 15, 40]) {
      // Many turns are under way when it dies, wherever each of them may be.
      const turning = Promise.allSettled(names.map(rotate))
      await new Promise((resolve) => setTimeout(resolve, delayMs))
      await operator.server.end('SIGKILL')
      await turning
      await operator.server.again()
    }
    for (const name of names) {
      const stop = JSON.stringify({ spec: { rotationPeriod: '1h' } })
      await cluster.request(
        'PATCH',
        `/apis/keyturn.dev/v1alpha1/namespaces/${namespace}/ldapstaticroles/${name}`,
        stop,
        {
          type: 'application/merge-patch+json',
        },
      )
    }
    const from = performance.now()
    for (const name of names) await settles(name, accounts.get(name) ?? '')
    console.log(`measured: engine killed three times -> all Secrets bind: ${(performance.now() - from).toFixed(0)} ms`)
  })

  test('the API server killed and started again, and frozen for 5 s: rotations still reach their Secrets', async () => {
    const { dn } = await readyRole('patient')
    await cluster.kill('kube-apiserver')
    expect(await rotate('patient')).toBeLessThan(300)
    await cluster.start('kube-apiserver')
    let from = performance.now()
    await settles('patient', dn)
    console.log(`measured: API server back -> Secret written: ${(performance.now() - from).toFixed(0)} ms`)

    cluster.freeze('kube-apiserver')
    expect(await rotate('patient')).toBeLessThan(300)
    await new Promise((resolve) => setTimeout(resolve, 5_000))
    cluster.thaw('kube-apiserver')
    from = performance.now()
    await settles('patient', dn)
    console.log(`measured: API server thawed -> Secret written: ${(performance.now() - from).toFixed(0)} ms`)
    expect(await roleIn('patient')).toMatchObject({ credential_version: 3 })

    // The watches live again, at the latest after the longest pause between two tries: an own Secret that goes comes back.
    const watch = await watchSecrets(cluster, namespace)
    from = performance.now()
    const created = await readyRole('reborn', {}, 45)
    await cluster.request('DELETE', `/api/v1/namespaces/${namespace}/secrets/reborn`)
    await until(40, 'the Secret to come back', () => secret('reborn'))
    watch.stop()
    await settles('reborn', created.dn)
  })

  test('the directory away: the Secret keeps what binds, the status says why, and the rotation is made up for', async () => {
    const { dn } = await readyRole('waiting', { rotationPeriod: '5s' })
    await operator.slapd.crash()
    const told = await until(30, 'the failure to be told', async () => {
      const found = await lsr('waiting')
      return condition(found, 'CredentialCurrent') === 'False RotationFailed' ? found : undefined
    })
    const before = await secret('waiting')
    expect(condition(told)).toBe('False RotationFailed')
    expect(condition(told, 'SecretSynced')).toBe('True Synced')
    await operator.slapd.again()
    await until(40, 'the next password', async () => {
      const written = await secret('waiting')
      const password = written?.data['password'] ?? ''
      return password !== before?.data['password'] && binds(operator.slapd, dn, password)
    })
  })
})
