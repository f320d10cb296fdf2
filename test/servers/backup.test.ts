import { execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { binds, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// Backup while passwords turn, and what a restored store may serve: nothing that was not proven since.

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts')
const MANAGER = `cn=svc-manager,ou=services,${SUFFIX}`
const ACCOUNTS = { stay: 'static-1', turned: 'static-2', fast1: 'lib-1', fast2: 'lib-2', fast3: 'lib-3' }
const dnOf = (name: keyof typeof ACCOUNTS) => `uid=${ACCOUNTS[name]},ou=services,${SUFFIX}`

let slapd: Slapd
let work: string
let backup: string
let sealKey: string
let token: string
let stayed: string
let outdated: string
const running: Keyturn[] = []

interface Ended {
  readonly code: number
  readonly out: string
  readonly err: string
}
/** The command line as users run it. */
async function run(
  args: readonly string[],
  { input = '', env = {} }: { input?: string; env?: NodeJS.ProcessEnv } = {},
) {
  const child = spawn(process.execPath, [MAIN, ...args], { env: { ...process.env, ...env } })
  child.stdin.end(input)
  const code = new Promise<number>((resolve) => child.once('close', (n) => resolve(n ?? -1)))
  return { out: await text(child.stdout), err: await text(child.stderr), code: await code } satisfies Ended
}

async function until(what: string, holds: () => Promise<boolean>, limitMs = 30_000): Promise<void> {
  const end = performance.now() + limitMs
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`not within ${limitMs} ms: ${what}`)
    await sleep(50)
  }
}

async function setPassword(dn: string, password: string): Promise<void> {
  const admin = ['-x', '-H', slapd.url, '-D', `cn=admin,${SUFFIX}`, '-w', 'admin-secret']
  await promisify(execFile)('ldappasswd', [...admin, '-s', password, dn])
}

beforeAll(async () => {
  work = mkdtempSync(path.join(tmpdir(), 'kt-backup-'))
  backup = path.join(work, 'backup.db')
  slapd = await startSlapd()
  const keyturn = await startKeyturn()
  try {
    token = await keyturn.rootToken()
    const config = { url: slapd.url, userattr: 'uid', binddn: MANAGER, bindpass: 'svc-manager-secret' }
    await keyturn.call('POST', 'ldap/config', { ...config, userdn: `ou=services,${SUFFIX}` })
    await keyturn.call('POST', 'auth/ldap/config', { ...config, userdn: `ou=people,${SUFFIX}` })
    await keyturn.call('POST', 'sys/mounts/bare', { type: 'ldap' })
    for (const [name, username] of Object.entries(ACCOUNTS)) {
      const period = name.startsWith('fast') ? 5 : '24h'
      const made = await keyturn.call('POST', `ldap/static-role/team/${name}`, { username, rotation_period: period })
      expect(made.status, made.text).toBe(204)
    }
    // Backups while rotations run: several, and every one is whole; the last is used.
    const rotating = new AbortController()
    let rotations = 0
    const rotate = async () => {
      while (!rotating.signal.aborted) {
        for (const name of ['fast1', 'fast2', 'fast3']) {
          const { status } = await keyturn.call('POST', `ldap/rotate-role/team/${name}`)
          if (status === 204) rotations += 1
        }
      }
    }
    const rotated = rotate()
    const env = { KEYTURN_ADDR: keyturn.url, KEYTURN_TOKEN: token, KEYTURN_CACERT: keyturn.caFile }
    for (const name of ['one.db', 'two.db', 'backup.db']) {
      const { code, out, err } = await run(['backup', path.join(work, name)], { env })
      expect(code, err).toBe(0)
      expect(out + err).toContain(name)
    }
    const again = await run(['backup', backup], { env })
    expect([again.code, again.err]).toEqual([2, expect.stringContaining('exists already')])
    const nowhere = await run(['backup', path.join(work, 'no/such/dir.db')], { env })
    expect([nowhere.code, nowhere.err]).toEqual([2, expect.stringContaining('no such file or directory')])
    rotating.abort()
    await rotated
    expect(rotations).toBeGreaterThan(3)
    console.log(`${rotations} rotations while 3 backups were written`)
    // After the backup one more password turns.
    const passwordOf = async (name: string) =>
      (await keyturn.call('GET', `ldap/static-cred/team/${name}`)).body.data.password
    stayed = await passwordOf('stay')
    outdated = await passwordOf('turned')
    expect((await keyturn.call('POST', 'ldap/rotate-role/team/turned')).status).toBe(204)
    sealKey = path.join(work, 'seal-key')
    copyFileSync(path.join(keyturn.dataDir, 'seal-key'), sealKey)
  } finally {
    await keyturn.stop()
  }
}, 120_000)
afterEach(async () => {
  for (const keyturn of running.splice(0)) await keyturn.stop()
})
afterAll(async () => {
  await slapd?.stop()
  rmSync(work, { recursive: true, force: true })
})

let count = 0
/** A new data directory, not made yet. */
const place = () => path.join(work, `data-${++count}`)

async function restored(...more: string[]): Promise<{ data: string; out: string }> {
  const data = place()
  const { code, out, err } = await run(['restore', backup, '--data', data, '--seal-key', sealKey, ...more])
  expect(code, err).toBe(0)
  expect(out).toContain(`Start it with: keyturn server --data ${data} --seal-key ${sealKey}\n`)
  return { data, out }
}
async function start(data: string): Promise<Keyturn> {
  const keyturn = await startKeyturn({ work: data, args: ['--seal-key', sealKey] })
  running.push(keyturn)
  return keyturn
}
const read = (keyturn: Keyturn, name: string) =>
  keyturn.call('GET', `ldap/static-cred/team/${name}`, undefined, { token })

describe('a restored store', () => {
  test('serves what still binds, turns what does not, and serves nothing while the directory cannot tell', async () => {
    const { data } = await restored()
    await slapd.crash()
    let keyturn: Keyturn
    try {
      keyturn = await start(data)
      for (const name of Object.keys(ACCOUNTS)) {
        const { status, text: told, headers } = await read(keyturn, name)
        expect([name, status], told).toEqual([name, 503])
        expect(told).not.toContain(stayed)
        expect(Number(headers['retry-after'])).toBeLessThanOrEqual(5)
      }
    } finally {
      await slapd.again()
    }
    for (const name of ['stay', 'turned', 'fast1', 'fast2', 'fast3'] as const) {
      await until(
        `${name} is served`,
        async () => {
          const { status, body } = await read(keyturn, name)
          return status === 200 && (await binds(slapd, dnOf(name), body.data.password))
        },
        90_000,
      )
    }
    expect((await read(keyturn, 'stay')).body.data.password).toBe(stayed)
    const turned = (await read(keyturn, 'turned')).body.data
    expect(turned.password).not.toBe(outdated)
    expect(await binds(slapd, dnOf('turned'), outdated)).toBe(false)
    const { body } = await keyturn.call('GET', 'sys/events?after=1&limit=1000', undefined, { token })
    expect(body.data.gap).toBe(true)
    const feed = (
      await keyturn.call('GET', `sys/events?after=${body.data.first_kept - 1}&limit=1000`, undefined, { token })
    ).body.data
    const happened = feed.events.map(({ type, path: at }: { type: string; path: string }) => `${type} ${at}`)
    expect(happened).toContain('drift static-role/team/turned')
    expect(happened).toContain('rotate static-role/team/turned')
    expect(happened).not.toContain('rotate static-role/team/stay')
    expect(keyturn.output).not.toContain(outdated)
  }, 150_000)

  test('whose managing account has turned since is opened by --bind-password', async () => {
    const secret = path.join(work, 'manager-password')
    writeFileSync(secret, 'turned-since-1\n')
    await setPassword(MANAGER, 'turned-since-1')
    try {
      const stuck = await start((await restored()).data)
      const refused = await read(stuck, 'stay')
      expect(refused.status, refused.text).toBe(503)
      await stuck.end('SIGKILL')

      const named = await restored('--bind-password', secret, `--bind-password=auth/ldap=${secret}`)
      expect(named.out).toContain('ldap/')
      expect(named.out).not.toContain('turned-since-1')
      const keyturn = await start(named.data)
      for (const name of ['stay', 'turned'] as const) {
        await until(`${name} is served`, async () => {
          const { status, body } = await read(keyturn, name)
          return status === 200 && (await binds(slapd, dnOf(name), body.data.password))
        })
      }
      expect((await read(keyturn, 'stay')).body.data.password).toBe(stayed)
      const login = await keyturn.call('POST', 'auth/ldap/login/alice', { password: 'alice-secret' }, { token: null })
      expect(login.status, login.text).toBe(200)

      const data = place()
      const args = ['restore', backup, '--data', data, '--seal-key', sealKey, '--bind-password', 'ldap=-']
      const piped = await run(args, { input: 'turned-since-1' })
      expect(piped.code, piped.err).toBe(0)
      const third = await start(data)
      await until('served again', async () => (await read(third, 'stay')).status === 200)
    } finally {
      await setPassword(MANAGER, 'svc-manager-secret')
    }
  }, 120_000)
})

describe('restore refuses, says why, and leaves nothing', () => {
  const base = (data: string) => ['restore', backup, '--data', data, '--seal-key', sealKey]
  const other = () => {
    const file = path.join(work, 'other-key')
    writeFileSync(file, randomBytes(32).toString('base64'), { mode: 0o600 })
    return file
  }
  const written = (name: string, content: string) => {
    const file = path.join(work, name)
    writeFileSync(file, content)
    return file
  }
  const occupied = (data: string) => {
    mkdirSync(data)
    copyFileSync(backup, path.join(data, 'keyturn.db'))
  }
  const cases: { what: string; args: (data: string) => string[]; says: string; prepare?: (data: string) => void }[] = [
    {
      what: 'the wrong seal key',
      args: (d) => ['restore', backup, '--data', d, '--seal-key', other()],
      says: 'seal key',
    },
    {
      what: 'no seal key',
      args: (d) => ['restore', backup, '--data', d, '--seal-key', path.join(work, 'absent')],
      says: 'does not exist',
    },
    { what: 'an existing store', args: base, prepare: occupied, says: 'exists already' },
    {
      what: 'a file that is not there',
      args: (d) => ['restore', path.join(work, 'absent.db'), '--data', d, '--seal-key', sealKey],
      says: 'no such file',
    },
    {
      what: 'a file that is no backup',
      args: (d) => ['restore', written('letter', 'Dear store,\n'.repeat(1000)), '--data', d, '--seal-key', sealKey],
      says: 'letter',
    },
    { what: 'no file at all', args: (d) => ['restore', '--data', d], says: 'the backup is missing' },
    { what: 'an unknown flag', args: (d) => [...base(d), '--force'], says: '--force' },
    {
      what: 'a password for a mount that is not there',
      args: (d) => [...base(d), '--bind-password', `kv=${written('pw', 'x')}`],
      says: 'no LDAP mount at kv/',
    },
    {
      what: 'a password for a mount that has none',
      args: (d) => [...base(d), '--bind-password', `auth/token=${written('pw', 'x')}`],
      says: 'no LDAP mount at auth/token/',
    },
    {
      what: 'a password for a mount without configuration',
      args: (d) => [...base(d), '--bind-password', `bare=${written('pw', 'x')}`],
      says: 'bare/ is not configured',
    },
    {
      what: 'one good password and one for no mount',
      args: (d) => [...base(d), '--bind-password', written('pw', 'x'), '--bind-password', `kv=${written('pw', 'x')}`],
      says: 'kv/',
    },
    {
      what: 'two passwords for one mount',
      args: (d) => [...base(d), '--bind-password', 'a', '--bind-password', 'ldap/=b'],
      says: 'twice',
    },
    {
      what: 'a password file that is not there',
      args: (d) => [...base(d), '--bind-password', '/absent'],
      says: '/absent',
    },
    {
      what: 'an empty password file',
      args: (d) => [...base(d), '--bind-password', written('empty', '\n')],
      says: 'empty',
    },
    { what: 'an empty flag', args: (d) => [...base(d), '--bind-password', ''], says: '--bind-password must be' },
  ]
  test.each(cases)('$what', async ({ args, says, prepare }) => {
    const data = place()
    prepare?.(data)
    const before = existsSync(data) ? readdirSync(data) : []
    const { code, out, err } = await run(args(data))
    expect(code, err).toBeGreaterThan(0)
    expect(err).toContain(says)
    expect(err).toMatch(/^keyturn: .+\n$/)
    expect(out).toBe('')
    expect(existsSync(data) ? readdirSync(data) : []).toEqual(before)
  })

  test('a full disk', async () => {
    const data = place()
    mkdirSync(data)
    const script = 'mount -t tmpfs -o size=32k tmpfs "$0" && shift 0; "$@"; code=$?; ls -A "$0"; exit $code'
    const child = spawn('unshare', ['-m', 'sh', '-c', script, data, process.execPath, MAIN, ...base(data)])
    const code = new Promise((resolve) => child.once('close', resolve))
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
    expect(await code).toBe(5)
    expect(err).toContain('the disk is full')
    expect(out).toBe('')
  })

  test('and the backup stays as it is', async () => {
    const before = readFileSync(backup)
    await restored()
    expect(readFileSync(backup).equals(before)).toBe(true)
  })
})
