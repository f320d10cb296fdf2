/**
 * `npm run demo`: the main job, watched. A scratch OpenLDAP server, the manifests of `config/samples/`, a password that turns by itself, stands in
 * a Secret, and is read over /v1 by a person who logged in with her directory password; each claim is proven by binding. Goes on running until
 * Ctrl-C; `--once` ends with exit code 0 when everything was proven.
 */
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { freePort } from '../test/support/ports.ts'
import { binds, type Slapd, startSlapd } from '../test/support/slapd.ts'

const values = readFlags()
const root = path.resolve(import.meta.dirname, '..')
const work = mkdtempSync(path.join(tmpdir(), 'keyturn-demo-'))
const [manifests, secrets, data] = ['manifests', 'secrets', 'data'].map((name) => path.join(work, name)) as [
  string,
  string,
  string,
]
const ACCOUNT = 'uid=static-1,ou=services,dc=example,dc=test'
const FIRST_PASSWORD = 'static-1-secret'
const SECRET = path.join(secrets, 'demo/app-login')
const keyturn = path.join(root, 'node_modules/.bin/keyturn')

let step = 0
const say = (text: string) => console.log(text)
const head = (text: string) => say(`\n${++step}. ${text}`)

async function main(): Promise<void> {
  say('Keyturn: a directory password that turns by itself.')
  head('Starting a scratch OpenLDAP server, with people, groups and service accounts.')
  const slapd = await startSlapd()
  say(`   ${slapd.url}  (administrator cn=admin,dc=example,dc=test, password admin-secret)`)
  say(`   ${ACCOUNT} has the password "${FIRST_PASSWORD}".`)
  await proven(slapd, FIRST_PASSWORD, true, 'The directory accepts it')

  head('Starting Keyturn (keyturn dev: engine, API and operator in one process) on the manifests of config/samples/.')
  cpSync(path.join(root, 'config/samples'), manifests, { recursive: true })
  for (const file of readdirSync(manifests)) {
    const at = path.join(manifests, file)
    writeFileSync(at, readFileSync(at, 'utf8').replaceAll('ldap://127.0.0.1:3890', slapd.url))
  }
  const port = values.port ?? String(await freePort())
  const url = `https://127.0.0.1:${port}`
  const log = path.join(work, 'log')
  const process_ = startDev(port, log)
  const env = { KEYTURN_ADDR: url, KEYTURN_CACERT: path.join(data, 'tls/ca.crt'), HOME: work }
  const first = await passwordOtherThan('', () => process_.exitCode !== null)
  say(`   ${url} answers. The LdapStaticRole demo/app took over the account, and its Secret is`)
  say(`   ${SECRET}/{username,password,dn}.`)
  await proven(slapd, first, true, 'The password in the Secret binds')
  await proven(slapd, FIRST_PASSWORD, false, 'The old password does not')

  head('Alice logs in with her directory password and reads the account over /v1.')
  say('   $ SERVICE_LDAP_PASSWORD=… keyturn login --method ldap username=alice')
  await run(['login', '--method', 'ldap', 'username=alice'], { ...env, SERVICE_LDAP_PASSWORD: 'alice-secret' })
  say('   $ keyturn read ldap/static-cred/demo/app')
  const read = JSON.parse(await run(['read', '--format', 'json', 'ldap/static-cred/demo/app'], env)).data
  const shown = { ...read, password: hidden(read.password), last_password: hidden(read.last_password) }
  for (const [name, value] of Object.entries(shown)) say(`     ${name.padEnd(22)} ${value}`)
  check(read.password === currentPassword(), 'What she reads is what stands in the Secret')

  head('Alice turns it by hand.')
  say('   $ keyturn write ldap/rotate-role/demo/app')
  await run(['write', 'ldap/rotate-role/demo/app'], env)
  const second = await passwordOtherThan(read.password)
  await proven(slapd, second, true, 'The new password binds')
  await proven(slapd, read.password, false, 'The one before does not')

  head('Nobody does anything, and it turns by itself (rotationPeriod in the manifest: 15s).')
  const third = await passwordOtherThan(second)
  await proven(slapd, third, true, 'The new password binds')
  await proven(slapd, second, false, 'The one before does not')

  say('\nAll of it was proven against the directory.')
  if (!values.once) await stayRunning(slapd, url)
}

function readFlags() {
  try {
    return parseArgs({ options: { once: { type: 'boolean', default: false }, port: { type: 'string' } } }).values
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\nusage: npm run demo [-- --once] [--port PORT]`)
    process.exit(2)
  }
}

function startDev(port: string, log: string) {
  const args = ['dev', '--manifests', manifests, '--secrets', secrets, '--data', data, '--listen', `127.0.0.1:${port}`]
  mkdirSync(secrets, { mode: 0o700 })
  const shell = `exec "$0" "$@" 2>"${log}"`
  const child = spawn('setpriv', ['--pdeathsig', 'TERM', '--', 'sh', '-c', shell, keyturn, ...args], {
    stdio: 'ignore',
  })
  child.once('exit', (code) => {
    if (code) console.error(`keyturn ended with exit code ${code}; its log is ${log}`)
  })
  return child
}

function currentPassword(): string | undefined {
  try {
    return readFileSync(path.join(SECRET, 'password'), 'utf8')
  } catch {
    return undefined
  }
}

async function passwordOtherThan(before: string, hasEnded: () => boolean = () => false): Promise<string> {
  const end = performance.now() + 60_000
  for (;;) {
    const now = currentPassword()
    if (now !== undefined && now !== before) return now
    if (hasEnded() || performance.now() > end) throw new Error(`no new password in ${SECRET}; the log is ${work}/log`)
    await sleep(50)
  }
}

async function proven(slapd: Slapd, password: string, expected: boolean, claim: string): Promise<void> {
  check(
    (await binds(slapd, ACCOUNT, password)) === expected,
    `${claim} (tried by a bind: ${expected ? 'accepted' : 'refused'})`,
  )
}

function check(holds: boolean, claim: string): void {
  if (!holds) throw new Error(`NOT TRUE: ${claim}`)
  say(`   ✓ ${claim}.`)
}

function hidden(password: string): string {
  return password === '' ? '' : `${password.slice(0, 4)}… (${password.length} characters)`
}

function run(args: readonly string[], env: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(keyturn, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] })
    let out = ''
    child.stdout.on('data', (chunk) => (out += chunk))
    child.once('close', (code) =>
      code === 0 ? resolve(out) : reject(new Error(`keyturn ${args[0]} failed (${code})`)),
    )
  })
}

async function stayRunning(slapd: Slapd, url: string): Promise<void> {
  say('\nIt goes on running. Try, in another terminal:\n')
  say(`   export PATH=${path.dirname(keyturn)}:$PATH KEYTURN_ADDR=${url} KEYTURN_CACERT=${data}/tls/ca.crt`)
  say(`   export KEYTURN_TOKEN=$(cat ${data}/root-token)`)
  say('   keyturn read ldap/static-cred/demo/app')
  say(`   ls -l ${SECRET}/`)
  say(`   $EDITOR ${manifests}/*.yaml      # what you save is applied`)
  say(`   ldapsearch -x -H ${slapd.url} -D cn=admin,dc=example,dc=test -w admin-secret -b dc=example,dc=test dn`)
  say('\nCtrl-C ends it and removes its files.')
  await new Promise<void>((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
  })
}

try {
  await main()
  process.exitCode = 0
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
}
// The servers end with this process; what they wrote goes, unless there is something to look at.
if (process.exitCode === 0) rmSync(work, { recursive: true, force: true })
process.exit()
