import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../support/cluster.ts'
import { condition, type Operator, read, resource, startOperator } from '../support/operator.ts'
import { sharedCluster } from '../support/shared-cluster.ts'
import { slapdAvailable } from '../support/slapd.ts'

/** At rest nothing is written. The API server's own audit log is the witness. */

const cluster = sharedCluster()
const ROLES = 100
const QUIET_MS = 60_000
/** The start is over when nothing was written for this long. */
const SETTLED_MS = 10_000

describe.skipIf(!cluster || !slapdAvailable())('the operator at rest', () => {
  if (!cluster) return
  let operator: Operator

  beforeAll(async () => {
    operator = await startOperator(cluster)
    await operator.engine('calm')
  })
  afterAll(() => operator?.stop())

  /** What the operator wrote to the API server, as the audit log has it. */
  const writes = () =>
    cluster
      .audit()
      .filter(({ user, verb }) => user?.username === 'operator' && !['get', 'list', 'watch'].includes(verb))
      .map(({ auditID, verb, objectRef, requestReceivedTimestamp }) => ({
        auditID,
        at: Date.parse(requestReceivedTimestamp),
        what: `${verb} ${objectRef.resource}${objectRef.subresource ? `/${objectRef.subresource}` : ''}`,
        where: `${objectRef.namespace}/${objectRef.name}`,
      }))

  test('100 ready roles, nothing due, 60 s: no write but Lease renewals', { timeout: 300_000 }, async () => {
    const namespace = await operator.namespace({ tenant: 'yes' })
    const from = performance.now()
    const names = Array.from({ length: ROLES }, (_, at) => `calm-${at}`)
    await Promise.all(
      names.map((name) => {
        const spec = { engineRef: { name: 'calm' }, username: operator.account().username, rotationPeriod: '24h' }
        return cluster.apply(resource('LdapStaticRole', name, namespace, { ...spec, output: {} }))
      }),
    )
    await until(60, 'all roles to be ready', async () => {
      const { body } = await cluster.request(
        'GET',
        `/apis/keyturn.dev/v1alpha1/namespaces/${namespace}/ldapstaticroles`,
      )
      return body.items.filter((item: object) => condition(item) === 'True Ready').length === ROLES
    })
    console.log(`measured: ${ROLES} roles applied at once -> all ready: ${(performance.now() - from).toFixed(0)} ms`)

    // The engine's object counts its roles a moment later, and the two events of each role are written behind the statuses.
    await until(60, 'the count of the roles', async () => {
      const { status } = await read(cluster, 'ldapengines', 'calm')
      return status.roles.static === ROLES
    })
    await until(60, 'the last writes of the start', async () => {
      const told = writes().filter(({ what }) => !what.endsWith(' leases'))
      const events = told.filter(({ what, where }) => what === 'create events' && where.startsWith(`${namespace}/`))
      const restMs = Math.max(...told.map(({ at }) => at)) + SETTLED_MS - Date.now()
      if (restMs > 0) await sleep(restMs)
      return restMs <= 0 && events.length >= 2 * ROLES
    })

    const begin = Date.now()
    await sleep(QUIET_MS)
    const during = writes().filter(({ at }) => at >= begin)
    const leases = during.filter(({ what }) => what === 'update leases')
    console.log(
      `measured: writes in ${QUIET_MS / 1000} s at rest with ${ROLES} roles: ${leases.length} of the Lease, ${during.length - leases.length} others`,
    )
    expect(leases.length).toBeGreaterThan(10)
    expect(during.filter(({ what }) => what !== 'update leases')).toEqual([])
  })
})
