import { appendFileSync, existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { binds, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// The audit log: two lines a request, a line a rotation, and no request without its line.

let slapd: Slapd
beforeAll(async () => {
  slapd = await startSlapd()
})
afterAll(() => slapd?.stop())

interface Line {
  readonly time: string
  readonly type: string
  readonly request?: { id: string; path: string; operation: string }
  readonly error?: { kind: string }
  readonly event?: string
  readonly number?: number
  readonly path?: string
  readonly error_class?: string
  readonly credential_version?: number
}

const endsWhole = (file: string) => readFileSync(file, 'utf8').endsWith('\n')

/** Every line must be whole: one that is no JSON fails the test. What follows the last of them is just being written. */
function linesOf(file: string): Line[] {
  const text = readFileSync(file, 'utf8')
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
}

async function until(what: string, holds: () => boolean | Promise<boolean>, limitMs = 20_000): Promise<void> {
  const end = performance.now() + limitMs
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`not within ${limitMs} ms: ${what}`)
    await sleep(50)
  }
}

async function configure(keyturn: Keyturn): Promise<void> {
  const written = await keyturn.call('POST', 'ldap/config', {
    url: slapd.url,
    binddn: `cn=svc-manager,ou=services,${SUFFIX}`,
    bindpass: 'svc-manager-secret',
    userdn: `ou=services,${SUFFIX}`,
    userattr: 'uid',
  })
  expect(written.status, written.text).toBe(204)
}

interface Event {
  readonly number: number
  readonly type: string
  readonly path: string
}
async function rotations(keyturn: Keyturn): Promise<Event[]> {
  const { body } = await keyturn.call('GET', 'sys/events?after=0&limit=1000')
  return body.data.events.filter(({ type }: Event) => type.startsWith('rotate'))
}

describe('with a disk of its own', () => {
  let keyturn: Keyturn
  let directory: string
  /** The log as the server sees it: the disk is mounted for that process only. */
  let log: string
  let ballast: string

  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'kt-audit-'))
    const mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    keyturn = await startKeyturn({
      under: ['unshare', '-m', 'sh', '-c', mount, directory],
      args: ['--audit-log', path.join(directory, 'audit.log')],
    })
    const inside = `/proc/${keyturn.pid}/root${directory}`
    log = path.join(inside, 'audit.log')
    ballast = path.join(inside, 'ballast')
    await configure(keyturn)
  })
  afterAll(async () => {
    await keyturn?.stop()
    await rm(directory, { recursive: true, force: true })
  })

  /** Leaves no octet: neither a new page nor the rest of the log's last one (which gets line ends). */
  function fill(): void {
    for (const [file, octets] of [
      [ballast, Buffer.alloc(65_536)],
      [ballast, Buffer.alloc(1)],
      [log, Buffer.from('\n')],
    ] as const)
      try {
        for (;;) appendFileSync(file, octets)
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error
      }
  }

  test('each request, served or refused, has two lines of one id', async () => {
    const answers = await Promise.all([
      keyturn.call('GET', 'ldap/config'),
      keyturn.call('POST', 'sys/policies/acl/one', { policy: 'path "a" { capabilities = ["read"] }' }),
      keyturn.call('POST', 'sys/policies/acl/two', { policy: 'nonsense' }),
      keyturn.call('GET', 'ldap/static-role/absent'),
      keyturn.call('GET', 'ldap/config', undefined, { token: null }),
      keyturn.call('GET', 'ldap/config', undefined, { token: 'kts.unknown' }),
      keyturn.call('GET', 'kv/nothing'),
      keyturn.call('PUT', 'ldap/rotate-role/absent'),
      keyturn.call('POST', 'auth/ldap/login/alice', { password: 'x' }, { token: null }),
    ])
    expect(answers.map(({ status }) => status)).toEqual([200, 204, 400, 404, 403, 403, 404, 400, 400])
    expect(endsWhole(log)).toBe(true)
    const lines = linesOf(log).filter(({ type }) => type === 'request' || type === 'response')
    const byId = Map.groupBy(lines, ({ request }) => request?.id)
    for (const [id, group] of byId)
      expect(
        group.map(({ type }) => type),
        id,
      ).toEqual(['request', 'response'])
    const kinds = lines
      .filter(({ type }) => type === 'response')
      .map(({ request, error }) => [request?.path, error?.kind])
    for (const row of [
      ['ldap/config', undefined],
      ['sys/policies/acl/one', undefined],
      ['sys/policies/acl/two', 'invalid'],
      ['ldap/config', 'denied'],
      ['kv/nothing', 'not-found'],
      ['ldap/rotate-role/absent', 'invalid'],
      ['auth/ldap/login/alice', 'invalid'],
    ])
      expect(kinds).toContainEqual(row)
    const [served] = answers
    expect(byId.get(served?.body.request_id)).toHaveLength(2)
  })

  test('a full disk refuses every request before anything is done; with space all goes on, and no rotation is missing', async () => {
    const created = await keyturn.call('POST', 'ldap/static-role/full', { username: 'lib-1', rotation_period: 5 })
    expect(created.status, created.text).toBe(204)
    const { dn, password } = (await keyturn.call('GET', 'ldap/static-cred/full')).body.data
    fill()
    const refused = await Promise.all([
      keyturn.call('POST', 'sys/policies/acl/never', { policy: 'path "a" { capabilities = ["read"] }' }),
      keyturn.call('GET', 'ldap/static-cred/full'),
      keyturn.call('POST', 'auth/token/create', { policies: 'default' }),
      keyturn.call('POST', 'auth/ldap/login/alice', { password: 'x' }, { token: null }),
      keyturn.call('DELETE', 'ldap/static-role/full'),
    ])
    for (const { status, text, headers } of refused) {
      expect(status, text).toBe(503)
      expect(text).toContain('the audit record cannot be written')
      expect(Number(headers['retry-after'])).toBeLessThanOrEqual(5)
    }
    // Whoever probes is told that the server lives: a restart would not make space.
    expect((await keyturn.call('GET', 'sys/health', undefined, { token: null })).status).toBe(200)
    // Rotations go on: a password that is not turned is no safer.
    const lines = readFileSync(log, 'utf8').length
    await until('a rotation while the disk is full', async () => !(await binds(slapd, dn, password)))
    await until('its record is refused', () => /worker.*rotation-records/.test(keyturn.output))
    expect(readFileSync(log, 'utf8').length - lines).toBeLessThan(4096)
    rmSync(ballast)
    await until('requests are served again', async () => (await keyturn.call('GET', 'ldap/config')).status === 200)
    expect((await keyturn.call('GET', 'sys/policies/acl/never')).status).toBe(404)
    expect((await keyturn.call('GET', 'ldap/static-cred/full')).status).toBe(200)
    const turned = (await rotations(keyturn)).filter(({ path: at }) => at === 'static-role/full')
    expect(turned.length).toBeGreaterThanOrEqual(2)
    await until(
      'every rotation of before is recorded',
      () => {
        const recorded = linesOf(log).flatMap(({ type, number }) => (type === 'rotation' ? [number] : []))
        return turned.every(({ number }) => recorded.includes(number))
      },
      90_000,
    )
    await until('a whole last line', () => endsWhole(log))
  }, 120_000)
})

test('every automatic rotation is a record, failures too, through kill -9 and a restart', async () => {
  const keyturn = await startKeyturn()
  const log = path.join(keyturn.dataDir, 'audit.log')
  try {
    await configure(keyturn)
    await keyturn.call('POST', 'ldap/static-role/team/auto', { username: 'lib-2', rotation_period: 5 })
    const count = async () => (await rotations(keyturn)).length
    await until('two automatic rotations', async () => (await count()) >= 3)
    await keyturn.end('SIGKILL')
    await keyturn.again()
    const before = await count()
    await until('another one', async () => (await count()) > before)
    // Its directory refuses the service: a failure.
    await keyturn.call('POST', 'ldap/config', { bindpass: 'wrong' })
    await until('a failure', async () => (await rotations(keyturn)).some(({ type }) => type === 'rotate-fail'))
    const happened = await rotations(keyturn)
    await until('all of them in the log', () => {
      const recorded = linesOf(log).filter(({ type }) => type === 'rotation')
      return happened.every((event) =>
        recorded.some(
          (line) => line.number === event.number && line.event === event.type && line.path === 'static-role/team/auto',
        ),
      )
    })
    const failure = linesOf(log).find(({ event }) => event === 'rotate-fail')
    expect(failure?.error_class).toBe('bind-refused')
    await keyturn.end()
    expect(endsWhole(log)).toBe(true)
    // Told once each: the place in the feed is kept.
    const numbers = linesOf(log).flatMap(({ number }) => number ?? [])
    expect(numbers.length - new Set(numbers).size).toBeLessThanOrEqual(1)
  } finally {
    await keyturn.stop()
  }
})

test('to standard output', async () => {
  const keyturn = await startKeyturn({ args: ['--audit-log', '-'] })
  try {
    await keyturn.call('GET', 'sys/mounts')
    await until(
      'both lines',
      () => keyturn.output.split('\n').filter((line) => line.includes('"path":"sys/mounts"')).length === 2,
    )
    expect(existsSync(path.join(keyturn.dataDir, 'audit.log'))).toBe(false)
  } finally {
    await keyturn.stop()
  }
})
