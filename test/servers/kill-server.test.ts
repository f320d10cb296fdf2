import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Keyturn, type Reply, startKeyturn } from '../support/keyturn.ts'
import { binds, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// kill -9 of the whole server at random moments under mixed load: what was acknowledged is there, and every role's password binds.

const SECONDS = 20
const LEAST_KILLS = 6
const LEAST_ROTATIONS = 50
/** A slow machine gets more rounds for what must have happened, but ends before the time limit of the test. */
const MOST_SECONDS = 150
const ROLES = 16
let slapd: Slapd
let keyturn: Keyturn

beforeAll(async () => {
  slapd = await startSlapd({ BULK: String(ROLES) })
  keyturn = await startKeyturn({ env: { KEYTURN_LOG_LEVEL: 'warn' } })
  const config = { url: slapd.url, userattr: 'uid', binddn: `cn=admin,${SUFFIX}`, bindpass: 'admin-secret' }
  for (const [at, userdn] of [
    ['ldap/config', `ou=bulk,${SUFFIX}`],
    ['auth/ldap/config', `ou=people,${SUFFIX}`],
  ] as const) {
    const { status, text } = await keyturn.call('POST', at, { ...config, userdn })
    expect(status, text).toBe(204)
  }
})
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
})

/** `undefined`: no answer came, so anything may have happened. */
type Call = (method: string, path: string, body?: unknown) => Promise<Reply | undefined>

/** What a role must be, by the answers so far; `unsure`: the last request was not answered. */
interface Role {
  readonly name: string
  readonly username: string
  state: 'absent' | 'there' | 'unsure'
  password?: string
  /** Of the credential: it never goes back. */
  version: number
}

const counts = { kills: 0, created: 0, rotated: 0, deleted: 0, policies: 0, logins: 0, unanswered: 0 }

async function useRole(role: Role, call: Call): Promise<void> {
  const at = `ldap/static-role/load/${role.name}`
  if (role.state !== 'there') {
    const made = await call('POST', at, { username: role.username, rotation_period: '24h' })
    if (!made) {
      role.state = 'unsure'
      return
    }
    expect(made.status, made.text).toBe(204)
    role.state = 'there'
    counts.created += 1
    return
  }
  switch (randomInt(5)) {
    case 0: {
      role.state = 'unsure'
      const gone = await call('DELETE', at)
      if (!gone) return
      expect(gone.status, gone.text).toBe(204)
      role.state = 'absent'
      role.version = 0
      counts.deleted += 1
      return
    }
    case 1:
    case 2:
    case 3: {
      const turned = await call('POST', `ldap/rotate-role/load/${role.name}`)
      if (!turned) return
      expect(turned.status, turned.text).toBe(204)
      counts.rotated += 1
      role.version += 1
      return
    }
    default: {
      const read = await call('GET', `ldap/static-cred/load/${role.name}`)
      if (!read) return
      expect(read.status, read.text).toBe(200)
      expect(read.body.data.credential_version).toBeGreaterThanOrEqual(role.version)
      role.version = read.body.data.credential_version
    }
  }
}

const policyOf = (n: number) => `path "n/${n}" { capabilities = ["read"] }`

test('every acknowledged write survives, and every password binds', { timeout: 180_000 }, async () => {
  const roles = Array.from(
    { length: ROLES },
    (_, i): Role => ({ name: `r${i}`, username: `bulk-${i + 1}`, state: 'absent', version: 0 }),
  )
  const policies = Array.from({ length: 4 }, (_, i) => ({ name: `p${i}`, acknowledged: 0, tried: 0 }))
  const tokens: string[] = []
  const startMs = performance.now()
  const slowest = { startMs: 0, bindMs: 0 }

  const isOngoing = () => {
    const seconds = (performance.now() - startMs) / 1000
    const isEnough = counts.kills >= LEAST_KILLS && counts.rotated > LEAST_ROTATIONS
    return seconds < SECONDS || (!isEnough && seconds < MOST_SECONDS)
  }
  while (isOngoing()) {
    const stop = new AbortController()
    const call: Call = async (method, path, body) => {
      try {
        return await keyturn.call(method, path, body)
      } catch {
        counts.unanswered += 1
        return undefined
      }
    }
    const forever = async (work: () => Promise<void>) => {
      while (!stop.signal.aborted) await work()
    }
    const load = [
      ...roles.map((role) => forever(() => useRole(role, call))),
      ...policies.map((policy) =>
        forever(async () => {
          policy.tried += 1
          const written = await call('POST', `sys/policies/acl/${policy.name}`, { policy: policyOf(policy.tried) })
          if (!written) return
          expect(written.status, written.text).toBe(204)
          policy.acknowledged = policy.tried
          counts.policies += 1
        }),
      ),
      ...[0, 1].map(() =>
        forever(async () => {
          const login = await call('POST', 'auth/ldap/login/alice', { password: 'alice-secret' })
          if (!login) return
          expect(login.status, login.text).toBe(200)
          tokens.push(login.body.auth.client_token)
          counts.logins += 1
        }),
      ),
    ]
    const loaded = Promise.all(load)
    await Promise.race([sleep(randomInt(100, 1200)), loaded])
    stop.abort()
    await keyturn.end('SIGKILL')
    await loaded
    counts.kills += 1

    const beginMs = performance.now()
    await keyturn.again()
    slowest.startMs = Math.max(slowest.startMs, performance.now() - beginMs)
    await Promise.all([
      ...policies.map(async ({ name, acknowledged, tried }) => {
        const { status, body } = await keyturn.call('GET', `sys/policies/acl/${name}`)
        if (acknowledged === 0 && status === 404) return
        expect([policyOf(acknowledged), policyOf(tried)], name).toContain(body.data?.policy)
      }),
      ...tokens.slice(-20).map(async (token) => {
        const { status, text } = await keyturn.call('GET', 'auth/token/lookup-self', undefined, { token })
        expect(status, text).toBe(200)
      }),
      ...roles.map((role) => settle(role, slowest)),
    ])
  }
  console.log(
    `${JSON.stringify(counts)}; slowest start ${Math.round(slowest.startMs)} ms, slowest bind after it ${Math.round(slowest.bindMs)} ms`,
  )
  expect(counts.kills).toBeGreaterThanOrEqual(LEAST_KILLS)
  expect(counts.rotated).toBeGreaterThan(LEAST_ROTATIONS)
  expect(keyturn.output).not.toContain('fault of the program')
})

/** After a restart the role is what was acknowledged, and its password binds within 5 s. */
async function settle(role: Role, slowest: { bindMs: number }): Promise<void> {
  const { status } = await keyturn.call('GET', `ldap/static-role/load/${role.name}`)
  if (role.state === 'there') expect(status, role.name).toBe(200)
  if (role.state === 'absent') expect(status, role.name).toBe(404)
  role.state = status === 200 ? 'there' : 'absent'
  if (status !== 200) {
    // A creation that was cut off may still come into being: asking again goes on with it.
    role.version = 0
    return
  }
  const startMs = performance.now()
  for (;;) {
    const { status: served, body, text } = await keyturn.call('GET', `ldap/static-cred/load/${role.name}`)
    if (served === 200 && (await binds(slapd, `uid=${role.username},ou=bulk,${SUFFIX}`, body.data.password))) {
      expect(body.data.credential_version, role.name).toBeGreaterThanOrEqual(role.version)
      role.version = body.data.credential_version
      break
    }
    if (performance.now() - startMs > 5_000) throw new Error(`the password of ${role.name} does not bind: ${text}`)
    await sleep(50)
  }
  slowest.bindMs = Math.max(slowest.bindMs, performance.now() - startMs)
}
