import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type CallOptions, type Keyturn, type Reply, startKeyturn } from '../support/keyturn.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// Secrets with a name each are planted wherever one can stand, rightly or by mistake; then a story of successes and failures is told at log level
// trace, and nothing that keyturn wrote anywhere, or told anybody who should not know, may hold one of them.

const MANAGER = `cn=svc-manager,ou=services,${SUFFIX}`
const READER = `cn=svc-reader,ou=services,${SUFFIX}`
const planted = new Map<string, string>()
/** A new secret; the name says where it was planted. Lower-case letters and digits, so that no encoding hides it but those looked for. */
function plant(name: string): string {
  const secret = `planted${randomBytes(9).toString('hex')}`
  planted.set(name, secret)
  return secret
}
function learn(name: string, secret: unknown): void {
  expect(typeof secret === 'string' && secret.length >= 20, name).toBe(true)
  planted.set(name, String(secret))
}

let slapd: Slapd
let keyturn: Keyturn
let work: string
const told: { what: string; reply: Reply }[] = []

/** A call whose answer must hold no secret. */
async function call(method: string, at: string, body?: unknown, options?: CallOptions): Promise<Reply> {
  const reply = await keyturn.call(method, at, body, options)
  told.push({ what: `${method} ${at} ${reply.status}`, reply })
  return reply
}
/** A call whose answer is meant to hold secrets. */
const confidential = (method: string, at: string, body?: unknown, options?: CallOptions) =>
  keyturn.call(method, at, body, options)

async function setPassword(dn: string, password: string): Promise<void> {
  const admin = ['-x', '-H', slapd.url, '-D', `cn=admin,${SUFFIX}`, '-w', 'admin-secret']
  await promisify(execFile)('ldappasswd', [...admin, '-s', password, dn])
}

async function until(what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  const end = performance.now() + 30_000
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`not within 30 s: ${what}\n${keyturn.output.slice(-3000)}`)
    await sleep(50)
  }
}

beforeAll(async () => {
  slapd = await startSlapd()
  work = mkdtempSync(path.join(tmpdir(), 'kt-planted-'))
  for (const name of ['manifests', 'secrets']) mkdirSync(path.join(work, name))
  await setPassword(MANAGER, plant('bind password of the engine'))
  await setPassword(READER, plant('bind password of the login'))
  await setPassword(`uid=alice,ou=people,${SUFFIX}`, plant('a user’s password'))
  writeManifests()
  keyturn = await startKeyturn({
    command: 'dev',
    args: ['--manifests', path.join(work, 'manifests'), '--secrets', path.join(work, 'secrets')],
    env: { KEYTURN_LOG_LEVEL: 'trace' },
  })
}, 60_000)
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
  rmSync(work, { recursive: true, force: true })
})

function writeManifests(): void {
  const file = (name: string, content: string) => writeFileSync(path.join(work, 'manifests', name), content)
  const engine = (name: string, secret: string) => `
apiVersion: keyturn.dev/v1alpha1
kind: LdapEngine
metadata: {name: ${name}}
spec:
  urls: ["${slapd.url}"]
  bindDN: ${MANAGER}
  bindPasswordSecretRef: {name: ${secret}, key: password}
  userDN: ou=services,${SUFFIX}
  userAttr: uid
  tenancy:
    - {namespaces: {names: [demo]}, kinds: [StaticRole], allowedDNs: ["ou=services,${SUFFIX}"], minRotationPeriod: 5s, maxRoles: 20}
---`
  const secret = (name: string, value: string, key = 'stringData') => `
apiVersion: v1
kind: Secret
metadata: {name: ${name}, namespace: keyturn-system}
${key}: {password: ${value}}
---`
  const role = (name: string, ref: string, username: string) => `
apiVersion: keyturn.dev/v1alpha1
kind: LdapStaticRole
metadata: {name: ${name}, namespace: demo}
spec:
  engineRef: {name: ${ref}}
  username: ${username}
  rotationPeriod: 5s
  output: {name: ${name}-login}
---`
  file('namespace.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}\n')
  file(
    'good.yaml',
    secret('corp-bind', planted.get('bind password of the engine') ?? '') +
      engine('corp', 'corp-bind') +
      role('app', 'corp', 'static-1'),
  )
  file(
    'wrong.yaml',
    secret('bad-bind', plant('a wrong bind password in a manifest')) +
      engine('broken', 'bad-bind') +
      role('stuck', 'broken', 'static-2'),
  )
  file('misspelt.yaml', secret('odd', plant('under a wrong key of a Secret'), 'stringdata'))
  file('malformed.yaml', `kind: Secret\nstringData: {password: "${plant('in malformed YAML')}\n  x: [`)
  file(
    'misplaced.yaml',
    engine('misplaced', 'corp-bind').replace(
      'userAttr: uid',
      `bindPassword: ${plant('in a field of a manifest that is not there')}`,
    ),
  )
  file(
    'inline.yaml',
    engine('inline', 'corp-bind').replace(
      '{name: corp-bind, key: password}',
      plant('a password in the place of a reference'),
    ),
  )
  file('base64.yaml', secret('b64', `"${plant('no base64')}!"`, 'data'))
}

async function tokensAndPolicies(): Promise<string> {
  learn('the root token', await keyturn.rootToken())
  learn('the controller’s token', await keyturn.controllerToken())
  const made = await confidential('POST', 'auth/token/create', { policies: 'default', meta: { note: 'x' } })
  const token = made.body.auth.client_token
  learn('a token', token)
  await confidential('GET', 'auth/token/lookup-self', undefined, { token })
  await confidential('POST', 'auth/token/lookup', { token })
  await confidential('POST', 'auth/token/renew', { token })
  const chosen = plant('a token of one’s own choice')
  await confidential('POST', 'auth/token/create', { id: chosen })
  await call('POST', 'auth/token/create', { id: chosen, display_name: 'again' })
  await call('GET', 'sys/mounts', undefined, { token })
  await call('GET', 'sys/mounts', undefined, { token: plant('an unknown token') })
  await call('GET', 'sys/mounts', undefined, { token: null, headers: { authorization: `Bearer ${plant('a bearer')}` } })
  await call('GET', 'sys/mounts', undefined, { token: null, headers: { authorization: `Basic ${plant('basic')}` } })
  await call('POST', 'auth/token/lookup', { token: plant('an unknown token in a body') })
  await call('POST', 'auth/token/lookup-accessor', { accessor: plant('a token as an accessor') })
  await call('POST', 'auth/token/revoke', { token: chosen })
  await call('POST', 'auth/token/create', { ttl: plant('in ttl'), type: plant('in type') })
  await call('POST', 'auth/token/create', { type: plant('in type alone') })
  await call('POST', 'auth/token/create', { meta: [plant('in meta')] })
  await call('POST', 'sys/policies/acl/p', { policy: `password = "${plant('in a policy that is none')}"` })
  await call('POST', 'sys/policies/acl/p', { policy: `path "a" { capabilities = ["${plant('as a capability')}` })
  return token
}

async function engine(): Promise<void> {
  await call('POST', 'sys/mounts/own', { type: 'ldap' })
  const config = {
    url: slapd.url,
    binddn: MANAGER,
    bindpass: planted.get('bind password of the engine'),
    userdn: `ou=services,${SUFFIX}`,
    userattr: 'uid',
  }
  await call('POST', 'own/config', config)
  await call('GET', 'own/config')
  const clientKey = await slapd.tls('client.key')
  learn('a client key', clientKey.split('\n')[3])
  const ca = slapd.ca
  expect((await call('POST', 'own/config', { client_tls_cert: ca, client_tls_key: clientKey })).status).toBe(400)
  const clientCert = await slapd.tls('client.crt')
  expect((await call('POST', 'own/config', { client_tls_cert: clientCert, client_tls_key: clientKey })).status).toBe(
    204,
  )
  await call('GET', 'own/config')
  const pem = (kind: string, text: string) => `-----BEGIN ${kind}-----\n${text}\n-----END ${kind}-----`
  await call('POST', 'own/config', { certificate: pem('CERTIFICATE', plant('in a certificate')) })
  await call('POST', 'own/config', { certificate: plant('as a certificate') })
  await call('POST', 'own/config', {
    client_tls_cert: clientCert,
    client_tls_key: pem('PRIVATE KEY', plant('in a key')),
  })

  // A password where none belongs.
  for (const field of [
    'length',
    'rotation_period',
    'starttls',
    'schema',
    'credential_type',
    'request_timeout',
    'url',
    'rotation_schedule',
    'tls_min_version',
    'dereference_aliases',
  ])
    expect((await call('POST', 'own/config', { [field]: plant(`in ${field}`) })).status, field).toBe(400)
  expect((await call('POST', 'own/config', { url: `ldap://me:${plant('in a URL')}@dc1` })).status).toBe(400)
  expect(
    (await call('POST', 'own/config', { url: `http://me:${plant('in a URL of another scheme')}@dc1` })).status,
  ).toBe(400)
  await call('POST', 'own/static-role/x', { username: plant('as a username'), rotation_period: 60 })
  await call('POST', 'own/static-role/x', { username: 'lib-1', rotation_period: plant('as a period') })
  await call('POST', 'own/static-role/x', { username: 'lib-1', dn: plant('as a DN'), rotation_period: 60 })
  await call('POST', 'own/static-role/x', {
    username: 'nobody-here',
    rotation_period: 60,
    passwd: plant('in an unknown field'),
  })
  await call('POST', 'own/rotate-role/absent', `{"password":"${plant('in malformed JSON')}`)
  await call('POST', 'own/rotate-role/absent', `["${plant('in an array')}"]`)
  const form = { headers: { 'content-type': 'application/x-www-form-urlencoded' } }
  await call('POST', 'own/rotate-role/absent', plant('a whole form body'), form)
  await call('POST', 'own/rotate-role/absent', { password: Number(`9${randomDigits()}`) })
  await call('GET', `own/static-cred/absent?password=${plant('in a query')}`)
  await call('GET', `own/static-cred/absent?${plant('a query without a name')}`)
  await call('GET', `sys/events?after=${plant('in after')}`)
  await call('GET', `sys/health?activecode=${plant('in activecode')}`)

  // Generated passwords.
  expect((await call('POST', 'own/static-role/team/app', { username: 'lib-1', rotation_period: 3600 })).status).toBe(
    204,
  )
  for (const n of [1, 2]) {
    const { data } = (await confidential('GET', 'own/static-cred/team/app')).body
    learn(`generated ${n}`, data.password)
    expect((await call('POST', 'own/rotate-role/team/app')).status).toBe(204)
  }
  learn('generated 3', (await confidential('GET', 'own/static-cred/team/app')).body.data.password)
  await call('GET', 'own/static-role/team/app')
  await call('POST', 'own/config', { bindpass: plant('a wrong bind password') })
  expect((await call('POST', 'own/rotate-role/team/app')).status).toBe(503)
  expect((await call('POST', 'own/rotate-role/team/app')).status).toBe(503)
  await call('POST', 'own/config', { bindpass: config.bindpass })
}

function randomDigits(): string {
  const digits = BigInt(`0x${randomBytes(6).toString('hex')}`)
    .toString()
    .padStart(15, '1')
    .slice(0, 14)
  planted.set('a password as a number', `9${digits}`)
  return digits
}

async function logins(): Promise<void> {
  await call('POST', 'auth/ldap/config', {
    url: slapd.url,
    binddn: READER,
    bindpass: planted.get('bind password of the login'),
    userdn: `ou=people,${SUFFIX}`,
    userattr: 'uid',
  })
  await call('GET', 'auth/ldap/config')
  const nobody = { token: null }
  const right = planted.get('a user’s password')
  const login = await confidential('POST', 'auth/ldap/login/alice', { password: right }, nobody)
  expect(login.status, login.text).toBe(200)
  learn('a token of a login', login.body.auth.client_token)
  await confidential('POST', 'auth/token/renew-self', {}, { token: login.body.auth.client_token })
  expect((await call('POST', 'auth/ldap/login/alice', { password: plant('a wrong password') }, nobody)).status).toBe(
    400,
  )
  await call('POST', 'auth/ldap/login/alice', { password: { x: plant('a password in an object') } }, nobody)
  await call('POST', 'auth/ldap/login/alice', { passwort: plant('a password in an unknown field') }, nobody)
  await call('POST', 'auth/ldap/login/alice', plant('a password as the whole body'), nobody)
  await call('POST', `auth/ldap/login/${plant('path: as a user name')}`, { password: 'x' }, nobody)
  // A user who binds for herself: renewals need her password.
  await call('POST', 'sys/auth/self', { type: 'ldap' })
  await call('POST', 'auth/self/config', { url: slapd.url, userdn: `ou=people,${SUFFIX}`, userattr: 'uid' })
  const own = await confidential('POST', 'auth/self/login/alice', { password: right }, nobody)
  expect(own.status, own.text).toBe(200)
  learn('a token of a login without a service', own.body.auth.client_token)
  await confidential('POST', 'auth/token/renew-self', {}, { token: own.body.auth.client_token })
  // The directory is away.
  await slapd.crash()
  try {
    expect((await call('POST', 'auth/ldap/login/alice', { password: right }, nobody)).status).toBe(503)
    await call('POST', 'auth/self/login/alice', { password: plant('a password while the directory is away') }, nobody)
    await call(
      'POST',
      `auth/ldap/login/${plant('path: as a user name while the directory is away')}`,
      { password: 'x' },
      nobody,
    )
    await call('POST', 'auth/token/renew-self', {}, { token: own.body.auth.client_token })
    expect((await call('POST', 'own/rotate-role/team/app')).status).toBe(503)
    expect((await call('POST', 'own/static-role/y', { username: 'lib-2', rotation_period: 60 })).status).toBe(503)
  } finally {
    await slapd.again()
  }
}

/** A file with its content, and the one secret that it is there to hold. */
function everyFile(directory: string): { file: string; content: string }[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(directory, name))
    .filter((file) => statSync(file).isFile())
    .map((file) => ({ file, content: readFileSync(file, 'latin1') }))
}

function hits(content: string, except: (name: string) => boolean = () => false): string[] {
  return [...planted]
    .filter(([name]) => !except(name))
    .filter(([, secret]) =>
      [
        secret,
        Buffer.from(secret).toString('base64').replace(/=+$/, '').slice(0, -1),
        Buffer.from(secret).toString('hex'),
      ].some((form) => content.includes(form)),
    )
    .map(([name]) => name)
}

test('no planted secret is anywhere', { timeout: 120_000 }, async () => {
  const token = await tokensAndPolicies()
  await engine()
  await logins()
  // The resources have come as far as they can, and a role of theirs has turned by itself.
  const output = (name: string) => path.join(work, 'secrets/demo/app-login', name)
  await until('the output of the resource', () => {
    try {
      learn('a generated password in an output', readFileSync(output('password'), 'utf8'))
      return true
    } catch {
      return false
    }
  })
  const first = planted.get('a generated password in an output')
  await until('the next one', () => readFileSync(output('password'), 'utf8') !== first)
  learn('the next generated password', readFileSync(output('password'), 'utf8'))
  await until('the broken engine says so', () => keyturn.output.includes('stuck'))
  await call('POST', 'sys/storage/snapshot', { file: 'all.db' })
  const { data } = (await call('GET', 'sys/events?after=0&limit=1000')).body
  expect(data.events.length).toBeGreaterThan(10)
  await call('GET', 'sys/metrics')
  await call('LIST', 'auth/token/accessors')
  await call('POST', 'auth/token/revoke-self', {}, { token })
  await keyturn.end('SIGKILL')
  await keyturn.again()
  learn('the controller’s next token', await keyturn.controllerToken())
  await call('GET', 'own/static-role/team/app')
  expect(await keyturn.end('SIGTERM')).toBe(0)

  expect(keyturn.output).toContain('"level":20')
  const found: string[] = []
  for (const { what, reply } of told) found.push(...hits(reply.text).map((name) => `${name}: in the answer to ${what}`))
  for (const line of keyturn.output.split('\n'))
    found.push(...hits(line).map((name) => `${name}: in the output: ${line.slice(0, 400)}`))
  const audit = readFileSync(path.join(keyturn.dataDir, 'audit.log'), 'utf8').trim().split('\n')
  expect(audit.length).toBeGreaterThan(100)
  for (const line of audit) {
    const { request } = JSON.parse(line)
    // What was asked for must be in the record, also where somebody typed a password into a path.
    const rest = request === undefined ? line : line.replace(JSON.stringify(request.path), '""')
    found.push(...hits(rest).map((name) => `${name}: in the audit log: ${line}`))
  }
  const own = new Map([
    [path.join(keyturn.dataDir, 'root-token'), 'the root token'],
    [path.join(keyturn.dataDir, 'controller-token'), 'the controller’s next token'],
  ])
  const files = [...everyFile(keyturn.dataDir), ...everyFile(work)].filter(
    ({ file }) => !file.startsWith(path.join(work, 'manifests')) && !file.startsWith(path.join(work, 'secrets/demo')),
  )
  expect(files.some(({ file }) => file.endsWith('keyturn.db'))).toBe(true)
  expect(files.some(({ file }) => file.endsWith('all.db'))).toBe(true)
  expect(files.some(({ content }) => content.includes('LdapEngine') || content.includes('conditions'))).toBe(true)
  for (const { file, content } of files)
    if (!file.endsWith('audit.log'))
      found.push(...hits(content, (name) => own.get(file) === name).map((name) => `${name}: in ${file}`))
  // Whoever names an account that is not there is told the name; nobody else is.
  const isOwnName = (line: string) => /^(path: .*|as a username): in the answer to/.test(line)
  expect(found.filter((line) => !isOwnName(line)).join('\n')).toBe('')
  console.log(
    `${planted.size} planted secrets, ${told.length} answers, ${audit.length} audit lines, ${files.length} files`,
  )
})
