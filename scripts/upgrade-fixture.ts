/**
 * Keeps what a release leaves behind for `test/servers/upgrade.test.ts`: its CRDs, and a store as a server of that version wrote it, with the key and
 * tokens that open it (of a scratch directory: nothing secret). Run once at a release: `node scripts/upgrade-fixture.ts`.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { startKeyturn } from '../test/support/keyturn.ts'
import { SUFFIX, startSlapd } from '../test/support/slapd.ts'

const root = path.resolve(import.meta.dirname, '..')
const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
const target = path.join(root, 'test/upgrade', version)
rmSync(target, { recursive: true, force: true })
mkdirSync(target, { recursive: true })
cpSync(path.join(root, 'crds'), path.join(target, 'crds'), { recursive: true })

const slapd = await startSlapd()
const keyturn = await startKeyturn()
const write = async (at: string, body: object) => {
  const { status, text } = await keyturn.call('POST', at, body)
  if (status >= 300) throw new Error(`${at}: ${status} ${text}`)
}
await write('ldap/config', {
  url: slapd.url,
  binddn: `cn=svc-manager,ou=services,${SUFFIX}`,
  bindpass: 'svc-manager-secret',
  userdn: `ou=services,${SUFFIX}`,
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

const expected = {
  rootToken: await keyturn.rootToken(),
  personToken: login.body.auth.client_token,
  entityId: login.body.auth.entity_id,
  password: cred.body.data.password,
  lastPassword: cred.body.data.last_password,
  rotatedAt: cred.body.data.last_service_rotation,
}
const snapshot = await keyturn.call('POST', 'sys/storage/snapshot', { file: 'store.db' })
cpSync(snapshot.body.data.file, path.join(target, 'keyturn.db'))
cpSync(path.join(keyturn.dataDir, 'seal-key'), path.join(target, 'seal-key'))
writeFileSync(path.join(target, 'expected.json'), `${JSON.stringify(expected, null, 2)}\n`)
await keyturn.stop()
await slapd.stop()
console.log(`kept ${path.relative(root, target)}`)
