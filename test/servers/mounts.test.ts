import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openDriver } from '../../src/engine/storage/open.ts'
import { type CallOptions, type Keyturn, startKeyturn } from '../support/keyturn.ts'

// What stands where: settings of mounts, the mounts of the first start, who may see and change them.

let keyturn: Keyturn
beforeAll(async () => {
  keyturn = await startKeyturn()
})
afterAll(() => keyturn?.stop())

async function ask(status: number, method: string, at: string, body?: unknown, options?: CallOptions) {
  const answer = await keyturn.call(method, at, body, options)
  expect(answer.status, `${method} ${at}: ${answer.text}`).toBe(status)
  return answer
}
const done = (method: string, at: string, body?: unknown) => ask(204, method, at, body)
const NOBODY: CallOptions = { token: null }

/** A token with these rules and nothing else. */
async function tokenWith(name: string, policy: string): Promise<string> {
  await done('POST', `sys/policies/acl/${name}`, { policy })
  const made = await ask(200, 'POST', 'auth/token/create', { policies: [name], no_default_policy: true })
  return made.body.auth.client_token
}

describe('the mounts of the first start', () => {
  test.each(['sys/mounts/ldap', 'sys/auth/ldap'])('%s is enabled again until somebody has used it', async (at) => {
    await done('POST', at, { type: 'ldap' })
    await done('POST', at, { type: 'ldap' })
    const mount = at.replace('sys/mounts/', '').replace('sys/auth/', 'auth/')
    const config = { url: 'ldap://127.0.0.1:1', binddn: 'cn=x', bindpass: 'y', userdn: 'dc=x' }
    await done('POST', `${mount}/config`, config)
    expect((await ask(400, 'POST', at, { type: 'ldap' })).text).toContain('path is already in use')
  })

  test.each([
    { lockout_threshold: 9 },
    { token_type: 'service' },
    { listing_visibility: 'unauth' },
    { description: 'x' },
    { max_lease_ttl: '1h' },
  ])('one with %j counts as used', async (setting) => {
    const fresh = await startKeyturn()
    try {
      expect((await fresh.call('POST', 'sys/auth/ldap/tune', setting)).status).toBe(204)
      expect((await fresh.call('POST', 'sys/auth/ldap', { type: 'ldap' })).status).toBe(400)
    } finally {
      await fresh.stop()
    }
  })

  test('any other mount is there once', async () => {
    await done('POST', 'sys/mounts/second', { type: 'ldap' })
    expect((await ask(400, 'POST', 'sys/mounts/second', { type: 'ldap' })).text).toContain('path is already in use')
    await done('POST', 'sys/auth/second', { type: 'ldap' })
    expect((await ask(400, 'POST', 'sys/auth/second', { type: 'ldap' })).text).toContain('path is already in use')
  })
})

describe('settings', () => {
  test('the type of tokens is read as it was set', async () => {
    const types = async () => {
      const list = (await ask(200, 'GET', 'sys/auth')).body.data['typed/'].config.token_type
      expect((await ask(200, 'GET', 'sys/auth/typed/tune')).body.data.token_type).toBe(list)
      return list
    }
    await done('POST', 'sys/auth/typed', { type: 'ldap', config: { token_type: 'service' } })
    expect(await types()).toBe('service')
    for (const [given, want] of [
      ['default', 'default-service'],
      ['service', 'service'],
      ['', 'default-service'],
      ['default-service', 'default-service'],
    ]) {
      await done('POST', 'sys/auth/typed/tune', { token_type: given })
      expect(await types()).toBe(want)
    }
  })

  test('an auth mount is neither read nor tuned below sys/mounts', async () => {
    await done('POST', 'sys/auth/guarded', { type: 'ldap' })
    const token = await tokenWith('tuner', 'path "sys/mounts/*" { capabilities = ["create", "read", "update"] }')
    for (const [method, at, body] of [
      ['GET', 'sys/mounts/auth/guarded/tune'],
      ['GET', 'sys/mounts/auth/guarded'],
      ['POST', 'sys/mounts/auth/guarded/tune', { lockout_disable: true }],
    ] as const)
      expect((await ask(400, method, at, body, { token })).text).toContain('no mount at auth/guarded/')
    const { data } = (await ask(200, 'GET', 'sys/auth/guarded/tune')).body
    expect(data.user_lockout_config.lockout_disable).toBe(false)
  })
})

describe('who asks what is there', () => {
  test('without a token is shown what is for everybody', async () => {
    await done('POST', 'sys/auth/open', { type: 'ldap', config: { listing_visibility: 'unauth' } })
    await done('POST', 'sys/auth/closed', { type: 'ldap', config: { listing_visibility: 'hidden' } })
    const shown = async (options?: CallOptions) =>
      (await ask(200, 'GET', 'sys/internal/ui/mounts', undefined, options)).body
    const { data } = await shown(NOBODY)
    expect(Object.keys(data.auth)).toEqual(['open/'])
    expect(data.secret).toEqual({})
    expect(Object.keys((await shown()).data.auth)).toEqual(expect.arrayContaining(['open/', 'closed/', 'ldap/']))
    await done('POST', 'sys/auth/open/tune', { listing_visibility: '' })
    expect((await shown(NOBODY)).data.auth).toEqual({})
  })

  test('a token that is brought must be good, and have the right', async () => {
    const token = await tokenWith('blind', 'path "ldap/*" { capabilities = ["read"] }')
    for (const brought of ['kts.unknown', token])
      await ask(403, 'GET', 'sys/internal/ui/mounts', undefined, { token: brought })
    await ask(403, 'GET', 'sys/internal/ui/mounts/ldap', undefined, NOBODY)
  })

  test('the server is initialised', async () => {
    expect((await ask(200, 'GET', 'sys/init', undefined, NOBODY)).body).toEqual({ initialized: true })
    expect((await ask(400, 'PUT', 'sys/init', { secret_shares: 1 }, NOBODY)).text).toContain('already initialized')
  })
})

describe('moving a mount', () => {
  test('what it owns goes with it', async () => {
    await done('POST', 'sys/mounts/here', { type: 'ldap' })
    await done('POST', 'here/config', { url: 'ldap://127.0.0.1:1', binddn: 'cn=x', bindpass: 'y', userdn: 'dc=x' })
    const { migration_id } = (await ask(200, 'POST', 'sys/remount', { from: '/here/', to: 'over/there' })).body.data
    expect((await ask(200, 'GET', `sys/remount/status/${migration_id}`)).body.data.migration_info).toEqual({
      source_mount: 'here/',
      target_mount: 'over/there/',
      status: 'success',
    })
    expect((await ask(200, 'GET', 'over/there/config')).body.data.binddn).toBe('cn=x')
    await ask(404, 'GET', 'here/config')
    await done('POST', 'sys/mounts/here', { type: 'ldap' })
  })

  test('an auth mount, with the tokens of its logins', async () => {
    await done('POST', 'sys/auth/staff', { type: 'ldap' })
    const { accessor } = (await ask(200, 'GET', 'sys/auth/staff')).body.data
    await ask(200, 'POST', 'sys/remount', { from: 'auth/staff', to: 'auth/people' })
    expect((await ask(200, 'GET', 'sys/auth/people')).body.data.accessor).toBe(accessor)
    await ask(404, 'GET', 'sys/remount/status/unknown')
  })
})

describe('removing a mount', () => {
  const config = { url: 'ldap://127.0.0.1:1', binddn: 'cn=x', bindpass: 'y', userdn: 'dc=x' }
  const role = (name: string) => ({
    username: name,
    dn: `cn=${name},dc=x`,
    rotation_period: '24h',
    skip_import_rotation: true,
  })

  /** A mount with a few hundred roles; its id. */
  async function bigMount(name: string): Promise<string> {
    await done('POST', `sys/mounts/${name}`, { type: 'ldap' })
    await done('POST', `${name}/config`, config)
    for (let at = 0; at < 400; at += 20)
      await Promise.all(
        Array.from({ length: 20 }, (_, n) => done('POST', `${name}/static-role/r${at + n}`, role(`${name}-${at + n}`))),
      )
    return (await ask(200, 'GET', `sys/mounts/${name}`)).body.data.uuid
  }

  /** The keys of the records that name a mount, of a store that is not running. */
  async function keysOf(id: string): Promise<string[]> {
    await using driver = openDriver(keyturn.dataDir)
    return (await driver.list('', { limit: 100_000 })).map(({ key }) => key).filter((key) => key.includes(id))
  }

  test('while it is written to, ends with nobody finding it', async () => {
    await bigMount('raced')
    let over = false
    const write = async (lane: number) => {
      for (let n = 0; !over; n++) {
        await keyturn.call('POST', 'raced/config', config)
        await keyturn.call('POST', `raced/static-role/late-${lane}-${n}`, role(`late-${lane}-${n}`))
      }
    }
    const writers = [1, 2, 3, 4].map(write)
    await done('DELETE', 'sys/mounts/raced')
    const after = await keyturn.call('POST', 'raced/config', config)
    over = true
    await Promise.all(writers)
    expect(after.status).toBe(404)
    await done('POST', 'sys/mounts/raced', { type: 'ldap' })
    expect((await keyturn.call('GET', 'raced/config')).status).toBe(404)
    expect((await keyturn.call('LIST', 'raced/static-role')).status).toBe(404)
  })

  test('is completed by the next start when the server is killed in between', async () => {
    const id = await bigMount('killed')
    const gone = keyturn.call('DELETE', 'sys/mounts/killed').catch(() => undefined)
    const seen = async () => (await keyturn.call('GET', 'sys/mounts')).body.data['killed/']
    await expect.poll(seen, { interval: 1, timeout: 20_000 }).toBeUndefined()
    await keyturn.end('SIGKILL')
    await gone
    await keyturn.again()
    expect((await keyturn.call('GET', 'killed/config')).status).toBe(404)
    await keyturn.end()
    expect(await keysOf(id)).toEqual([])
    await keyturn.again()
  })
})
