import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/api/limits.ts'
import { type ApiServer, startApi } from '../../src/api/server.ts'
import type { EngineDoor } from '../../src/engine/request.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { invalid } from '../../src/lib/errors.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'

// The program as people run it: its own process, with what it prints and how it ends.
const main = path.resolve(import.meta.dirname, '../../src/main.ts')
let dir: string
let server: ChildProcess
let tcp: string
let rootToken: string
let logins: ApiServer

beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'kt-cli-'))
  const args = [
    'server',
    '--data',
    path.join(dir, 'data'),
    '--listen',
    '127.0.0.1:0',
    '--socket',
    path.join(dir, 'k.sock'),
  ]
  server = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'ignore', 'pipe'] })
  let log = ''
  server.stderr?.on('data', (chunk) => {
    log += chunk
  })
  const end = performance.now() + 20_000
  while (!log.includes('server is ready')) {
    if (performance.now() > end || server.exitCode !== null) throw new Error(`the server did not start: ${log}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  tcp = /https:\/\/127\.0\.0\.1:\d+/.exec(log)?.[0] ?? ''
  rootToken = (await readFile(path.join(dir, 'data/root-token'), 'utf8')).trim()
  logins = await startApi({
    engine: directoryLogin,
    listeners: [
      { kind: 'unix', path: path.join(dir, 'login.sock'), mode: 0o600 },
      { kind: 'tcp', host: '127.0.0.1', port: 0, tls: { directory: path.join(dir, 'other'), names: ['elsewhere'] } },
    ],
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'silent' }),
    trustedProxies: [],
    proxyProtocol: false,
    limits: DEFAULT_LIMITS,
  })
})
afterAll(async () => {
  await logins[Symbol.asyncDispose]()
  if (server.exitCode === null) {
    server.kill('SIGTERM')
    await once(server, 'exit')
  }
  await rm(dir, { recursive: true, force: true })
})

/** An engine in which alice and her password are known; it notes who revokes a token. */
const revoked: (string | undefined)[] = []
const directoryLogin: EngineDoor = {
  async handle({ id, path: asked, fields, token }) {
    if (asked === 'auth/token/revoke-self') {
      revoked.push(token?.reveal())
      return { kind: 'empty', requestId: id, warnings: [] }
    }
    if (asked !== 'auth/corp/login/alice' || fields['password'] !== 'wonder land')
      throw invalid('ldap operation failed: failed to bind as user')
    const auth = {
      clientToken: new Secret('kts.alice'),
      accessor: 'acc',
      policies: ['default', 'ops'],
      tokenPolicies: ['default', 'ops'],
      identityPolicies: [],
      metadata: { username: 'alice' },
      leaseDurationMs: 3_600_000,
      renewable: true,
      entityId: 'e',
      tokenType: 'service',
      orphan: true,
      numUses: 0,
    } as const
    return { kind: 'content', requestId: id, mountType: 'ldap', warnings: ['careful'], shape: 'envelope', auth }
  },
}

async function spawned(program: string, args: readonly string[], env: Record<string, string> = {}) {
  const home = path.join(dir, 'home')
  await mkdir(home, { recursive: true })
  return spawn(program, args, {
    env: { PATH: process.env['PATH'], HOME: home, KEYTURN_ADDR: `unix:${dir}/k.sock`, ...env },
  })
}

async function keyturn(
  args: string[],
  { env = {}, input = '' }: { env?: Record<string, string>; input?: string } = {},
) {
  const child = await spawned(process.execPath, [main, ...args], env)
  let [out, err] = ['', '']
  child.stdout.on('data', (chunk) => {
    out += chunk
  })
  child.stderr.on('data', (chunk) => {
    err += chunk
  })
  child.stdin.end(input)
  const [code] = await once(child, 'close')
  return { code, out, err }
}

const asRoot = () => ({ env: { KEYTURN_TOKEN: rootToken } })

test('write, read, list and delete a policy, over the socket and over TLS', async () => {
  const policy = 'path "a/*" {\n  capabilities = ["read"]\n}'
  const written = await keyturn(['write', 'sys/policies/acl/ops', 'policy=-'], { ...asRoot(), input: `${policy}\n` })
  expect(written).toEqual({ code: 0, out: 'Written: sys/policies/acl/ops\n', err: '' })
  expect(await keyturn(['read', '--field=policy', 'sys/policies/acl/ops'], asRoot())).toEqual({
    code: 0,
    out: policy,
    err: '',
  })
  const tls = {
    env: { KEYTURN_TOKEN: rootToken, KEYTURN_ADDR: tcp, KEYTURN_CACERT: path.join(dir, 'data/tls/ca.crt') },
  }
  const json = await keyturn(['read', '-format=json', 'sys/policies/acl/ops'], tls)
  expect(JSON.parse(json.out).data).toMatchObject({ name: 'ops', policy })
  expect((await keyturn(['list', 'sys/policies/acl'], asRoot())).out).toBe('Keys\n----\ndefault\nops\nroot\n')
  expect(JSON.parse((await keyturn(['list', '--format', 'json', 'sys/policies/acl'], tls)).out)).toEqual([
    'default',
    'ops',
    'root',
  ])
  expect((await keyturn(['delete', 'sys/policies/acl/ops'], asRoot())).code).toBe(0)
  expect((await keyturn(['read', 'sys/policies/acl/ops'], asRoot())).code).toBe(4)
})

test('how it ended is in the exit code, why on standard error, and nothing on standard output', async () => {
  const denied = await keyturn(['read', 'sys/mounts'], { env: { KEYTURN_TOKEN: 'kts.none' } })
  expect(denied).toMatchObject({ code: 3, out: '' })
  expect(denied.err).toMatch(/^keyturn: permission denied\n {2}.*"keyturn login".*\n$/)
  expect((await keyturn(['read', 'sys/nowhere'], asRoot())).code).toBe(4)
  expect((await keyturn(['write', 'sys/policies/acl/bad', 'policy=path {'], asRoot())).code).toBe(2)
})

test.each<[string, (url: string) => string, string | undefined, number, RegExp]>([
  ['no CA', (url) => url, undefined, 2, /not trusted: .*\n.*--ca-cert FILE or KEYTURN_CACERT/],
  ['the CA of somebody else', (url) => url, 'other/ca.crt', 2, /not trusted: .*\n.*--ca-cert/],
  ['another name', () => logins.addresses[1] ?? '', 'other/ca.crt', 2, /for another name: .*\n.*--tls-names/],
  ['no TLS', (url) => url.replace('https', 'http'), undefined, 5, /cannot reach .*\n.*begins with https/],
])('%s: it says so, and what to do', async (_, addressOf, ca, code, said) => {
  const env = { KEYTURN_TOKEN: rootToken, KEYTURN_ADDR: addressOf(tcp) }
  const told = await keyturn(['read', 'sys/mounts'], {
    env: { ...env, ...(ca !== undefined && { KEYTURN_CACERT: path.join(dir, ca) }) },
  })
  expect(told).toMatchObject({ code, out: '', err: expect.stringMatching(said) })
  expect(told.err).not.toContain(rootToken)
})

test('whoever reads no further is left in peace; a full disk is told', async () => {
  const unread = await spawned(process.execPath, [main, 'help'])
  unread.stdout.destroy()
  let err = ''
  unread.stderr.on('data', (chunk) => (err += chunk))
  const [code] = await once(unread, 'close')
  expect({ code, err }).toEqual({ code: 0, err: '' })
  const full = await spawned('sh', ['-c', '"$0" "$1" help >/dev/full', process.execPath, main])
  full.stderr.on('data', (chunk) => (err += chunk))
  expect((await once(full, 'close'))[0]).toBe(1)
  expect(err).toMatch(/^keyturn: cannot write the answer: .*ENOSPC.*\n$/)
})

test('backup writes a file that only its owner reads', async () => {
  const file = path.join(dir, 'backup.db')
  expect(await keyturn(['backup', file], asRoot())).toEqual({ code: 0, out: `Backup written: ${file}\n`, err: '' })
  const { size, mode } = await stat(file)
  expect(size).toBeGreaterThan(0)
  expect(mode & 0o077).toBe(0)
  expect((await keyturn(['backup', file], { env: { KEYTURN_TOKEN: 'kts.none' } })).code).toBe(3)
})

test('a token login is kept for later commands', async () => {
  expect((await keyturn(['read', 'sys/mounts'])).code).toBe(3)
  expect((await keyturn(['login', '--method=token', '-'], { input: 'kts.none\n' })).code).toBe(3)
  expect((await keyturn(['login', '--method=token', '-'], { input: `${rootToken}\n` })).code).toBe(0)
  expect((await stat(path.join(dir, 'home/.keyturn-token'))).mode & 0o777).toBe(0o600)
  expect((await keyturn(['read', 'sys/mounts'])).code).toBe(0)
})

test.each([
  ['the environment', ['alice'], { SERVICE_LDAP_PASSWORD: 'wonder land' }, ''],
  ['its older names', ['username=alice'], { VAULT_LDAP_PASSWORD: 'wonder land' }, ''],
  ['standard input', ['username=alice', 'password=-'], {}, 'wonder land\n'],
])('a directory login with the password from %s', async (_, words, env: Record<string, string>, input) => {
  const at = { KEYTURN_ADDR: `unix:${dir}/login.sock` }
  const login = await keyturn(['login', '-method=ldap', '-path=corp', ...words], { env: { ...at, ...env }, input })
  expect(login).toMatchObject({
    code: 0,
    err: 'Warning: careful\n',
    out: expect.stringMatching(/policies +default, ops/),
  })
  expect(login.out).not.toContain('kts.alice')
  expect(await readFile(path.join(dir, 'home/.keyturn-token'), 'utf8')).toBe('kts.alice\n')
  const only = await keyturn(['login', '-path=corp', '-no-store', '-field=token', ...words], {
    env: { ...at, ...env },
    input,
  })
  expect(only.out).toBe('kts.alice')
})

test('a directory login that fails, and one without a password', async () => {
  const at = { KEYTURN_ADDR: `unix:${dir}/login.sock` }
  const wrong = await keyturn(['login', '-path=corp', 'alice'], { env: { ...at, SERVICE_LDAP_PASSWORD: 'hunter2' } })
  expect(wrong).toEqual({ code: 2, out: '', err: 'keyturn: ldap operation failed: failed to bind as user\n' })
  const none = await keyturn(['login', '-path=corp', 'alice'], { env: at })
  expect(none).toMatchObject({ code: 2, err: expect.stringContaining('SERVICE_LDAP_PASSWORD') })
})

test('a token that cannot be kept does not live on', async () => {
  const env = { KEYTURN_ADDR: `unix:${dir}/login.sock`, SERVICE_LDAP_PASSWORD: 'wonder land', HOME: '/dev/null' }
  const { code, out, err } = await keyturn(['login', '-path=corp', 'alice'], { env })
  expect({ code, out }).toEqual({ code: 2, out: '' })
  expect(err).toContain('cannot save the token in /dev/null/.keyturn-token')
  expect(revoked).toEqual(['kts.alice'])
})

test.each([
  ['a slip is taken back with Ctrl-U', 'wrong\u0015wonder landd\u007f\r', 0, /policies +default, ops/],
  ['Ctrl-C is no password', 'wonder\u0003', 2, /keyturn: interrupted/],
])('at a terminal, %s', async (_, typed, code, said) => {
  const command = `exec ${process.execPath} ${main} login -path=corp alice`
  const at = { KEYTURN_ADDR: `unix:${dir}/login.sock`, SHELL: '/bin/sh' }
  const terminal = await spawned('script', ['-qec', command, '/dev/null'], at)
  let shown = ''
  terminal.stdout.on('data', (chunk) => {
    if (!shown.includes('Password for alice: ') && `${shown}${chunk}`.includes('Password for alice: '))
      terminal.stdin.write(typed)
    shown += chunk
  })
  expect((await once(terminal, 'close'))[0], shown).toBe(code)
  expect(shown).toMatch(said)
  expect(shown).not.toContain('wonder')
})
