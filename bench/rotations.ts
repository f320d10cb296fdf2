import { setTimeout as sleep } from 'node:timers/promises'
import { Attribute, Change, type Client as Ldap } from 'ldapts'
import type { Keyturn } from '../test/support/keyturn.ts'
import { SUFFIX } from '../test/support/slapd.ts'
import { bindAll, connect, cpuMs, loadOver, ofLane, rssMb, unbindAll, until } from './load.ts'
import type { Report } from './report.ts'
import { BULK, configureEngine, withDirectory, withServer } from './servers.ts'

const ROLES = 1_000
/** As many as the rotation worker turns at once on a mount. */
const LANES = 8
const PERIOD_MS = 30_000

/**
 * 1,000 roles due at once. They are taken over without a rotation, and the server is stopped until all of them are due; its next start finds
 * them so. What the directory alone does at the same concurrency is measured on other entries of the same server, meanwhile.
 */
export async function rotations(report: Report): Promise<void> {
  await withDirectory(2 * ROLES, (slapd) =>
    withServer(async (keyturn) => {
      await configureEngine(keyturn, slapd)
      const names = Array.from({ length: ROLES }, (_, i) => `bulk-${i + 1}`)
      const created = await overApi(keyturn, names, (name) => [
        `ldap/static-role/${name}`,
        { username: name, rotation_period: `${PERIOD_MS / 1000}s`, skip_import_rotation: true },
      ])
      report.add('static roles created, 16 at once', created, '/s')
      const createdMs = performance.now()
      await keyturn.end()

      const clients = await bindAll(slapd.url, LANES, `cn=svc-manager,ou=services,${SUFFIX}`, 'svc-manager-secret')
      const before = await modifyRate(clients, 'a')
      await sleep(Math.max(0, createdMs + PERIOD_MS - performance.now()))

      await keyturn.again()
      await until('the last rotation', 60_000, async () => (await rotationTimes(keyturn)).length >= ROLES)
      const spentMs = await cpuMs(keyturn.pid)
      const times = await rotationTimes(keyturn)
      report.add('RSS of the server after 1,000 rotations', await rssMb(keyturn.pid), 'MB')
      // From the first to the last commit; the first is as late as the server took to start.
      const rate = ((times.length - 1) * 1000) / ((times.at(-1) ?? 0) - (times[0] ?? 0))
      const after = await modifyRate(clients, 'b')
      await unbindAll(clients)
      const alone = (before + after) / 2
      report.add('rotations, 1,000 due at once', rate, '/s')
      report.add(
        'modifies of the directory alone, 8 at once',
        alone,
        '/s',
        `${before.toFixed(0)} before, ${after.toFixed(0)} after`,
      )
      report.add('ratio', rate / alone, '', 'target: at least 0.5')
      report.add('CPU of the server a rotation, its start included', spentMs / ROLES, 'ms')

      // Nothing turns any more while passwords are compared.
      await overApi(keyturn, names, (name) => [`ldap/static-role/${name}`, { rotation_period: '24h' }])
      const bound = await boundPasswords(keyturn, slapd.url, names)
      report.add('roles whose password binds afterwards', bound, `/${ROLES}`)
      if (bound !== ROLES) throw new Error(`${ROLES - bound} passwords are lost`)
    }),
  )
}

async function overApi(
  keyturn: Keyturn,
  names: readonly string[],
  request: (name: string) => [path: string, body: unknown],
): Promise<number> {
  await using api = await connect(keyturn, 16, await keyturn.rootToken())
  return (await loadOver(16, names, (name, lane) => api.call(lane, 'POST', ...request(name)))).perSecond
}

/** How fast the directory takes new passwords of entries that no role has. */
async function modifyRate(clients: readonly Ldap[], mark: string): Promise<number> {
  const names = Array.from({ length: ROLES }, (_, i) => `bulk-${ROLES + i + 1}`)
  const { perSecond } = await loadOver(LANES, names, (name, lane) => {
    const modification = new Attribute({
      type: 'userPassword',
      values: [`${name}-${mark}-a-new-password-of-some-length`],
    })
    return ofLane(clients, lane).modify(`uid=${name},${BULK}`, new Change({ operation: 'replace', modification }))
  })
  return perSecond
}

/** When each role was rotated first, in order, as the event feed tells. */
async function rotationTimes(keyturn: Keyturn): Promise<number[]> {
  const { body } = await keyturn.call('GET', 'sys/events')
  // One creation and one rotation a role: anything less is not over, and reading it all would only burden what is measured.
  if (body.data.last < 2 * ROLES) return []
  const times: number[] = []
  for (let after = 0; ; ) {
    const page = await keyturn.call('GET', `sys/events?after=${after}&limit=1000`)
    const { events } = page.body.data
    if (events.length === 0) return times
    for (const { type, time, data, number } of events) {
      after = number
      if (type === 'rotate' && data.credential_version === 1) times.push(Date.parse(time))
    }
  }
}

async function boundPasswords(keyturn: Keyturn, url: string, names: readonly string[]): Promise<number> {
  const clients = await bindAll(url, LANES, `cn=svc-reader,ou=services,${SUFFIX}`, 'svc-reader-secret')
  await using api = await connect(keyturn, LANES, await keyturn.rootToken())
  let bound = 0
  await loadOver(LANES, names, async (name, lane) => {
    const { data } = (await api.call(lane, 'GET', `ldap/static-cred/${name}`)) as { data: Record<string, string> }
    const accepted = await ofLane(clients, lane)
      .bind(`uid=${name},${BULK}`, data['password'] ?? '')
      .then(
        () => true,
        () => false,
      )
    if (accepted && data['password'] !== '') bound += 1
  })
  await unbindAll(clients)
  return bound
}
