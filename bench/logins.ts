import { EqualityFilter } from 'ldapts'
import { SUFFIX } from '../test/support/slapd.ts'
import { bindAll, connect, cpuMs, loadFor, ofLane, unbindAll } from './load.ts'
import type { Report } from './report.ts'
import { BULK, must, READER, withDirectory, withServer } from './servers.ts'

const PEOPLE = 200
const DURATION_MS = 3_000

/** LDAP logins over HTTPS, beside the search and the bind that the directory itself needs for one. */
export async function logins(report: Report): Promise<void> {
  await withDirectory(PEOPLE, (slapd) =>
    withServer(async (keyturn) => {
      const groups = { groupdn: `ou=groups,${SUFFIX}`, groupfilter: '(member={{.UserDN}})' }
      await must(keyturn, 'auth/ldap/config', { url: slapd.url, ...READER, userdn: BULK, userattr: 'uid', ...groups })
      for (const lanes of [1, 16]) {
        const alone = await bareRate(slapd.url, lanes)
        await using api = await connect(keyturn, lanes, undefined)
        const cpuBefore = await cpuMs(keyturn.pid)
        let asked = 0
        const load = await loadFor(lanes, DURATION_MS, (lane, n) => {
          asked += 1
          const name = personOf(n)
          return api.call(lane, 'POST', `auth/ldap/login/${name}`, { password: `${name}-secret` })
        })
        const cpu = ((await cpuMs(keyturn.pid)) - cpuBefore) / asked
        report.add(
          `logins, ${lanes} at once`,
          load.perSecond,
          '/s',
          `p99 ${load.p99Ms.toFixed(1)} ms, CPU ${cpu.toFixed(2)} ms each`,
        )
        report.add(`search and bind of the directory alone, ${lanes} at once`, alone, '/s')
        report.add('ratio', load.perSecond / alone, '')
      }
    }),
  )
}

function personOf(n: number): string {
  return `bulk-${(n % PEOPLE) + 1}`
}

async function bareRate(url: string, lanes: number): Promise<number> {
  const services = await bindAll(url, lanes, READER.binddn, READER.bindpass)
  const people = await bindAll(url, lanes, READER.binddn, READER.bindpass)
  const { perSecond } = await loadFor(lanes, DURATION_MS, async (lane, n) => {
    const name = personOf(n)
    const filter = new EqualityFilter({ attribute: 'uid', value: name })
    const found = await ofLane(services, lane).search(BULK, { scope: 'sub', filter, attributes: ['uid'], sizeLimit: 2 })
    await ofLane(people, lane).bind(found.searchEntries[0]?.dn ?? '', `${name}-secret`)
  })
  await unbindAll([...services, ...people])
  return perSecond
}
