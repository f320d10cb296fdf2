import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import createVault from 'node-vault'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { binds, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'

// Clients that exist in the world, unchanged: hvac from PyPI, node-vault from npm, and LIST from curl.

const HVAC = 'hvac==2.4.0'
const run = promisify(execFile)
let slapd: Slapd
let keyturn: Keyturn

beforeAll(async () => {
  slapd = await startSlapd()
  keyturn = await startKeyturn()
  await keyturn.call('POST', 'sys/policies/acl/reader', {
    policy: 'path "+/static-cred/*" { capabilities = ["read"] }',
  })
  for (const client of ['hvac', 'node']) {
    await keyturn.call('POST', `sys/mounts/ldap-${client}`, { type: 'ldap' })
    await keyturn.call('POST', `sys/auth/people-${client}`, { type: 'ldap' })
    const written = await keyturn.call('POST', `auth/people-${client}/config`, {
      url: slapd.url,
      binddn: `cn=svc-reader,ou=services,${SUFFIX}`,
      bindpass: 'svc-reader-secret',
      userdn: `ou=people,${SUFFIX}`,
      userattr: 'uid',
      groupdn: `ou=groups,${SUFFIX}`,
    })
    expect(written.status, written.text).toBe(204)
    await keyturn.call('POST', `auth/people-${client}/groups/engineers`, { policies: 'reader' })
  }
}, 120_000)
afterAll(async () => {
  await keyturn?.stop()
  await slapd?.stop()
})

/** A virtual environment with hvac, kept between runs. */
async function python(): Promise<string> {
  const cache = process.env['XDG_CACHE_HOME'] ?? path.join(homedir(), '.cache')
  const venv = path.join(cache, 'keyturn-e2e', HVAC.replace(/=+/, '-'))
  const program = path.join(venv, 'bin/python')
  if (!existsSync(path.join(venv, 'ready'))) {
    await run('python3', ['-m', 'venv', '--clear', venv])
    await run(program, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', HVAC])
    await run('touch', [path.join(venv, 'ready')])
  }
  return program
}

test('hvac logs in, makes a role, reads, lists and rotates', { timeout: 120_000 }, async () => {
  const story = path.join(import.meta.dirname, '../support/clients/hvac_story.py')
  const args = [story, keyturn.url, keyturn.caFile, await keyturn.rootToken(), slapd.url]
  const child = spawn(await python(), args, { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] })
  const told = child.stdio[3]
  if (!told || !('read' in told)) throw new Error('no channel for the answers')
  const answers = JSON.parse(await text(told))
  expect(answers).toMatchObject({
    config: `cn=svc-manager,ou=services,${SUFFIX}`,
    role: 'lib-2',
    folders: ['hvac/'],
    policies: ['default', 'reader'],
    turned: true,
    dn: `uid=lib-2,ou=services,${SUFFIX}`,
    forbidden: true,
    refused: true,
  })
  expect(await binds(slapd, answers.dn, answers.password)).toBe(true)
})

test('node-vault logs in, makes a role, reads, lists and rotates', async () => {
  const options = { endpoint: keyturn.url, requestOptions: { strictSSL: false } }
  const admin = createVault({ ...options, token: await keyturn.rootToken() })
  await admin.write('ldap-node/config', {
    binddn: `cn=svc-manager,ou=services,${SUFFIX}`,
    bindpass: 'svc-manager-secret',
    url: slapd.url,
    userdn: `ou=services,${SUFFIX}`,
    userattr: 'uid',
  })
  await admin.write('ldap-node/static-role/node/app', { username: 'lib-3', rotation_period: 86_400 })
  expect((await admin.list('ldap-node/static-role')).data.keys).toEqual(['node/'])
  expect((await admin.list('ldap-node/static-role/node')).data.keys).toEqual(['app'])

  const person = createVault(options)
  const login = await person.ldapLogin({ username: 'alice', password: 'alice-secret', mount_point: 'people-node' })
  expect(login.auth.policies).toEqual(['default', 'reader'])
  person.token = login.auth.client_token
  const before = (await person.read('ldap-node/static-cred/node/app')).data
  await admin.write('ldap-node/rotate-role/node/app', {})
  const after = (await person.read('ldap-node/static-cred/node/app')).data
  expect(after.last_password).toBe(before.password)
  expect(await binds(slapd, after.dn, after.password)).toBe(true)
  expect(await binds(slapd, after.dn, before.password)).toBe(false)
  await expect(person.read('ldap-node/config')).rejects.toThrow(/permission denied/)
})

test('curl sends LIST', async () => {
  const curl = async (...args: string[]) =>
    JSON.parse((await run('curl', ['-sS', '--cacert', keyturn.caFile, ...args])).stdout)
  const token = await keyturn.rootToken()
  const url = `${keyturn.url}/v1/ldap-node/static-role/node`
  expect((await curl('-X', 'LIST', '-H', `X-Vault-Token: ${token}`, url)).data.keys).toEqual(['app'])
  expect(await curl('-X', 'LIST', '-H', `X-Service-Token: ${token}`, url)).toEqual(['app'])
  expect(await curl('-H', `X-Service-Token: ${token}`, `${url}?list=true`)).toEqual(['app'])
})
