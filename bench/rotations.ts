import { setTimeout as sleep } from 'node:timers/promises'
import { Attribute, Change, type Client as Ldap } from 'ldapts'
import type { Keyturn } from '../test/support/keyturn.ts'
import { SUFFIX } from '../test/support/slapd.ts'
import { bindAll, connect, cpuMs, loadOver, median, ofLane, rssMb, unbindAll, until } from './load.ts'
import type { Report } from './report.ts'
import { BULK, configureEngine, withDirectory, withServer } from './servers.ts'

const ROLES = 1_000
/** As many as the server asks one directory at once. */
const LANES = 8
const PERIOD_MS = 15_000
const ROUNDS = 5

/**
 * 1,000 roles due at once: they are created, and the server is frozen until all of them are due. What the directory alone does at the same
 * concurrency is measured on other entries of the same server, meanwhile and afterwards.
 */
export async function rotations(report: Report): Promise<void> {
  await withDirectory(2 * ROLES, (slapd) =>
    withServer(async (keyturn) => {
      await configureEngine(keyturn, slapd)
      const names = Array.from({ length: ROLES }, (_, i) => `bulk-${i + 1}`)
      const created = await overApi(keyturn, names, (username) => [
        `ldap/static-role/${username}`,
        { username, rotation_period: `${PERIOD_MS / 1000}s` },
      ])
      report.add('roles created with their first rotation, 16 at once', created, '/s')
      const clients = await bindAll(slapd.url, LANES, `cn=svc-manager,ou=services,${SUFFIX}`, 'svc-manager-secret')
      const rounds: Round[] = []
      for (let n = 1; n <= ROUNDS; n++) rounds.push(await allAtOnce(keyturn, clients, n))
      await unbindAll(clients)
      const each = (of: (round: Round) => number) => rounds.map((round) => Number(of(round).toPrecision(3))).join(', ')
      const ratio = ({ rate, alone }: Round) => rate / alone
      const cpu = median(rounds.map(({ cpuEachMs }) => cpuEachMs))
      const rate = median(rounds.map((round) => round.rate))
      report.add(
        'rotations, 1,000 due at once',
        rate,
        '/s',
        `${each((round) => round.rate)}; CPU ${cpu.toFixed(2)} ms each`,
      )
      report.add(
        'modifies of the directory alone, 8 at once',
        median(rounds.map(({ alone }) => alone)),
        '/s',
        each(({ alone }) => alone),
      )
      report.add('ratio', median(rounds.map(ratio)), '', `${each(ratio)}; target: at least 0.5`)
      report.add(`RSS of the server after ${(ROUNDS + 1) * ROLES} rotations`, await rssMb(keyturn.pid), 'MB')

      // Nothing turns any more while passwords are compared.
      await overApi(keyturn, names, (name) => [`ldap/static-role/${name}`, { rotation_period: '24h' }])
      const bound = await boundPasswords(keyturn, slapd.url, names)
      report.add('roles whose password binds afterwards', bound, `/${ROLES}`)
      if (bound !== ROLES) throw new Error(`${ROLES - bound} passwords are lost`)
    }),
  )
}

interface Round {
  readonly rate: number
  readonly alone: number
  readonly cpuEachMs: number
}

/** Freezes the server until all roles are due; what the directory alone does is measured right before and right after the rotations. */
async function allAtOnce(keyturn: Keyturn, clients: readonly Ldap[], round: number): Promise<Round> {
  process.kill(keyturn.pid, 'SIGSTOP')
  const frozenMs = performance.now()
  // The first time warms this process up and does not count.
  await modifyRate(clients, `${round}a`)
  await sleep(Math.max(0, frozenMs + PERIOD_MS - performance.now()))
  const before = await modifyRate(clients, `${round}b`)
  const cpuBeforeMs = await cpuMs(keyturn.pid)
  const beganMs = Date.now()
  process.kill(keyturn.pid, 'SIGCONT')
  const times = await rotationTimes(keyturn, round)
  const cpuEachMs = ((await cpuMs(keyturn.pid)) - cpuBeforeMs) / ROLES
  const after = await modifyRate(clients, `${round}c`)
  return { rate: (ROLES * 1000) / ((times.at(-1) ?? 0) - beganMs), alone: (before + after) / 2, cpuEachMs }
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

/** When each role was rotated in this round, in order, as the event feed tells; waits for the last. */
async function rotationTimes(keyturn: Keyturn, round: number): Promise<number[]> {
  // Roles make two events when they are created and one at each rotation. To read them all meanwhile would burden what is measured.
  const areAllThere = async () => {
    const { body } = await keyturn.call('GET', 'sys/events?limit=1')
    return body.data.last >= (round + 2) * ROLES
  }
  await until('the last rotation', 60_000, areAllThere, 250)
  const times: number[] = []
  for (let after = 0; times.length < ROLES; ) {
    const page = await keyturn.call('GET', `sys/events?after=${after}&limit=1000&wait=5s`)
    for (const { type, time, data, number } of page.body.data.events) {
      after = number
      if (type === 'rotate' && data.credential_version === round + 1) times.push(Date.parse(time))
    }
  }
  return times
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
