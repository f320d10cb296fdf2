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
    listeners: [{ kind: 'unix', path: path.join(dir, 'login.sock'), mode: 0o600 }],
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

/** An engine in which alice and her password are known. */
const directoryLogin: EngineDoor = {
  async handle({ id, path: asked, fields }) {
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

async function keyturn(
  args: string[],
  { env = {}, input = '' }: { env?: Record<string, string>; input?: string } = {},
) {
  const home = path.join(dir, 'home')
  await mkdir(home, { recursive: true })
  const child = spawn(process.execPath, [main, ...args], {
    env: { HOME: home, KEYTURN_ADDR: `unix:${dir}/k.sock`, ...env },
  })
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
  expect(denied).toEqual({ code: 3, out: '', err: 'keyturn: permission denied\n' })
  expect((await keyturn(['read', 'sys/nowhere'], asRoot())).code).toBe(4)
  expect((await keyturn(['write', 'sys/policies/acl/bad', 'policy=path {'], asRoot())).code).toBe(2)
  const stranger = await keyturn(['read', 'sys/mounts'], { env: { KEYTURN_TOKEN: rootToken, KEYTURN_ADDR: tcp } })
  expect(stranger).toMatchObject({ code: 5, out: '', err: expect.stringContaining('certificate') })
  expect(stranger.err).not.toContain(rootToken)
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
