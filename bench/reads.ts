import { connect, cpuMs, loadFor, loadOver } from './load.ts'
import type { Report } from './report.ts'
import { configureEngine, must, withDirectory, withServer } from './servers.ts'

const ROLES = 100
const DURATION_MS = 3_000

/** Reads that touch no directory, by a token with a policy of its own, with the audit log on. */
export async function reads(report: Report): Promise<void> {
  await withDirectory(ROLES, (slapd) =>
    withServer(async (keyturn) => {
      await configureEngine(keyturn, slapd)
      const policy = 'path "ldap/static-cred/*" { capabilities = ["read"] }'
      await must(keyturn, 'sys/policies/acl/reader', { policy })
      const { body } = await keyturn.call('POST', 'auth/token/create', { policies: ['reader'], ttl: '1h' })
      const token: string = body.auth.client_token
      await using setUp = await connect(keyturn, 8, await keyturn.rootToken())
      const names = Array.from({ length: ROLES }, (_, i) => `bulk-${i + 1}`)
      await loadOver(8, names, (username, lane) =>
        setUp.call(lane, 'POST', `ldap/static-role/${username}`, { username, rotation_period: '24h' }),
      )

      const cases: [what: string, path: (n: number) => string][] = [
        ['reads of a credential', (n) => `ldap/static-cred/bulk-${(n % ROLES) + 1}`],
        ['token lookups', () => 'auth/token/lookup-self'],
        ['health checks', () => 'sys/health'],
      ]
      for (const [what, path] of cases)
        for (const lanes of [1, 32]) {
          await using api = await connect(keyturn, lanes, token)
          const cpuBefore = await cpuMs(keyturn.pid)
          let asked = 0
          const load = await loadFor(lanes, DURATION_MS, (lane, n) => {
            asked += 1
            return api.call(lane, 'GET', path(n))
          })
          const cpu = ((await cpuMs(keyturn.pid)) - cpuBefore) / asked
          const note = `p99 ${load.p99Ms.toFixed(1)} ms, CPU ${(cpu * 1000).toFixed(0)} µs each`
          report.add(`${what}, ${lanes} at once`, load.perSecond, '/s', note)
        }
    }),
  )
}
