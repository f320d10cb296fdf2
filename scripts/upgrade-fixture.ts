/**
 * Keeps what a release leaves behind for `test/servers/upgrade.test.ts`: its CRDs and resources that they admit, and a store as a server of that
 * version wrote it, with the key and tokens that open it (of a scratch directory: nothing secret). Run once at a release:
 * `node scripts/upgrade-fixture.ts`.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { openFileSeal } from '../src/engine/seal/file-seal.ts'
import { staticRoleKind } from '../src/engine/secrets/ldap/records.ts'
import { openDriver, openStore } from '../src/engine/storage/open.ts'
import { systemClock } from '../src/lib/clock.ts'
import { type CallOptions, startKeyturn } from '../test/support/keyturn.ts'
import { SUFFIX, startSlapd } from '../test/support/slapd.ts'

const root = path.resolve(import.meta.dirname, '..')
const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
const target = path.join(root, 'test/upgrade', version)
const services = `ou=services,${SUFFIX}`
rmSync(target, { recursive: true, force: true })
mkdirSync(target, { recursive: true })
cpSync(path.join(root, 'crds'), path.join(target, 'crds'), { recursive: true })
cpSync(path.join(root, 'config/samples'), path.join(target, 'resources'), { recursive: true })

const slapd = await startSlapd()
const keyturn = await startKeyturn()
const write = async (at: string, body: object, options: CallOptions = {}) => {
  const { status, text } = await keyturn.call('POST', at, body, options)
  if (status >= 300) throw new Error(`${at}: ${status} ${text}`)
}
await write('ldap/config', {
  url: slapd.url,
  binddn: `cn=svc-manager,${services}`,
  bindpass: 'svc-manager-secret',
  userdn: services,
  userattr: 'uid',
})
await write('ldap/static-role/team/app', { username: 'static-1', rotation_period: '8760h' })
await write('ldap/static-role/imported', { username: 'static-2', rotation_period: '8760h', skip_import_rotation: true })
await write('ldap/rotate-role/team/app', {})
await write('sys/policies/acl/reader', { policy: 'path "ldap/static-cred/*" { capabilities = ["read"] }' })
await write('auth/ldap/config', {
  url: slapd.url,
  userdn: `ou=people,${SUFFIX}`,
  userattr: 'uid',
  token_policies: 'reader',
})
await write('auth/ldap/groups/engineers', { policies: 'reader' })
await write('auth/ldap/users/alice', { policies: 'reader', groups: 'engineers' })
await write('sys/mounts/other', { type: 'ldap', description: 'another', config: { max_lease_ttl: '48h' } })
const login = await keyturn.call('POST', 'auth/ldap/login/alice', { password: 'alice-secret' }, { token: null })
const cred = await keyturn.call('GET', 'ldap/static-cred/team/app')

// A role that a resource owns, in a namespace that may have one.
const controller = { token: await keyturn.controllerToken(), socket: true }
const owner = { 'x-keyturn-principal': 'kubernetes:payments', 'x-keyturn-owner': 'cr:ledger' }
const entry = { principals: ['kubernetes:payments'], kinds: ['StaticRole'], allowed_dns: [services], max_roles: 5 }
await write('sys/tenancy/ldap', { entries: [entry] }, controller)
const owned = { username: 'lib-1', rotation_period: '8760h' }
await write('ldap/static-role/payments/ledger', owned, { ...controller, headers: owner })

// A password in the air: the directory stands still after it became pending.
await write('ldap/static-role/held', { username: 'lib-2', rotation_period: '8760h' })
const before = keyturn.output.length
await slapd.freeze()
const turning = keyturn.call('POST', 'ldap/rotate-role/held', {}).catch(() => undefined)
while (!keyturn.output.slice(before).includes('pending-written')) await sleep(20)
const snapshot = await keyturn.call('POST', 'sys/storage/snapshot', { file: 'store.db' })
cpSync(snapshot.body.data.file, path.join(target, 'keyturn.db'))
cpSync(path.join(keyturn.dataDir, 'seal-key'), path.join(target, 'seal-key'))

const expected = {
  writtenAt: new Date().toISOString(),
  rootToken: await keyturn.rootToken(),
  personToken: login.body.auth.client_token,
  entityId: login.body.auth.entity_id,
  password: cred.body.data.password,
  lastPassword: cred.body.data.last_password,
  rotatedAt: cred.body.data.last_service_rotation,
  pendingPassword: await pendingPassword('held'),
}
writeFileSync(path.join(target, 'expected.json'), `${JSON.stringify(expected, null, 2)}\n`)
await keyturn.stop()
await turning
await slapd.stop()
console.log(`kept ${path.relative(root, target)}`)

/** Read from a copy: opening a store changes its file. */
async function pendingPassword(role: string): Promise<string> {
  const mounts = await keyturn.call('GET', 'sys/mounts')
  const copy = path.join(keyturn.dataDir, 'copy.db')
  cpSync(path.join(target, 'keyturn.db'), copy)
  await using driver = openDriver(copy)
  const store = await openStore({ driver, seal: openFileSeal(path.join(target, 'seal-key')), clock: systemClock })
  const found = await store.read(staticRoleKind, `${mounts.body.data['ldap/'].uuid}/${role}`)
  if (!found?.value.account.pending?.maybeSent) throw new Error(`no password of ${role} is in the air`)
  return found.value.account.pending.password.reveal()
}
