import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'

// One bit inside a sealed value is not as it was written: what does not need it goes on, what needs it says so, a backup with it is refused.

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts')
const POLICY = 'path "ldap/*" { capabilities = ["read"] }'

let keyturn: Keyturn
let work: string
beforeEach(async () => {
  work = await mkdtemp(path.join(tmpdir(), 'kt-damage-'))
  keyturn = await startKeyturn()
  for (const name of ['one', 'two'])
    expect((await keyturn.call('POST', `sys/policies/acl/${name}`, { policy: POLICY })).status).toBe(204)
})
afterEach(async () => {
  await keyturn?.stop()
  await rm(work, { recursive: true, force: true })
})

/** Turns one bit in the middle of one value. */
function flip(file: string, table: 'record' | 'event', where: string): void {
  const db = new DatabaseSync(file)
  const row = db.prepare(`SELECT rowid AS id, value FROM ${table} WHERE ${where} LIMIT 1`).get()
  const value = row?.['value']
  if (!(value instanceof Uint8Array)) throw new Error(`nothing is at ${where}`)
  const middle = value.length >> 1
  value[middle] = (value[middle] ?? 0) ^ 1
  const id = row?.['id']
  db.prepare(`UPDATE ${table} SET value = ? WHERE rowid = ?`).run(value, Number(id))
  db.close()
}

/** The server's own store, with the server at rest. */
async function damaged(table: 'record' | 'event', where: string): Promise<void> {
  expect(await keyturn.end()).toBe(0)
  flip(path.join(keyturn.dataDir, 'keyturn.db'), table, where)
}

test('in a policy: who needs it is told, the names are listed, the rest is served', async () => {
  const tokenWith = async (name: string) =>
    (await keyturn.call('POST', 'auth/token/create', { policies: [name] })).body.auth.client_token as string
  const [one, two] = [await tokenWith('one'), await tokenWith('two')]
  await damaged('record', "key = 'policy/one'")
  await keyturn.again()
  const read = await keyturn.call('GET', 'sys/policies/acl/one')
  expect([read.status, read.headers['x-keyturn-reason']], read.text).toEqual([503, 'store-damaged'])
  const { body } = await keyturn.call('LIST', 'sys/policies/acl')
  expect(body.data.keys).toEqual(['default', 'one', 'root', 'two'])
  expect((await keyturn.call('GET', 'sys/policies/acl/two')).status).toBe(200)
  expect((await keyturn.call('GET', 'ldap/config', undefined, { token: two })).status).toBe(404)
  expect((await keyturn.call('GET', 'ldap/config', undefined, { token: one })).status).toBe(503)
})

test('in an event: whoever follows is told of a gap, once', async () => {
  for (const name of ['a', 'b', 'c']) await keyturn.call('POST', `sys/mounts/${name}`, { type: 'ldap' })
  await damaged('event', 'number = (SELECT max(number) - 1 FROM event)')
  await keyturn.again()
  const follow = async (after: number) => (await keyturn.call('GET', `sys/events?after=${after}`)).body.data
  const { gap, last, events } = await follow(0)
  expect(gap).toBe(true)
  expect(events.map(({ number }: { number: number }) => number)).not.toContain(last - 1)
  expect((await follow(last)).gap).toBe(false)
  expect(keyturn.output).toContain('a part of the store is damaged')
})

test('a follower who has come further than the feed is told of a gap', async () => {
  const { last } = (await keyturn.call('GET', 'sys/events')).body.data
  expect((await keyturn.call('GET', `sys/events?after=${last}`)).body.data.gap).toBe(false)
  expect((await keyturn.call('GET', `sys/events?after=${last + 1}&wait=60s`)).body.data).toMatchObject({
    gap: true,
    last,
  })
})

test('in the table of mounts: the server says so and does not start', async () => {
  await damaged('record', "key = 'core/mounts'")
  const before = keyturn.output.length
  await expect(keyturn.again()).rejects.toThrow('ended while starting')
  const said = keyturn.output.slice(before)
  expect(said).toMatch(/^keyturn: the stored value of core\/mounts does not open.*restore a backup$/m)
  expect(said).not.toContain('    at ')
})

test.each(["key = 'core/mounts'", "key LIKE 'policy/%'", "key LIKE 'token/%'"])(
  'in a backup, at %s: it is refused and nothing is laid down',
  async (where) => {
    const file = path.join(work, 'backup.db')
    expect((await keyturn.call('POST', 'sys/storage/snapshot', { file }, { socket: true })).status).toBe(200)
    const sealKey = path.join(keyturn.dataDir, 'seal-key')
    const restore = () => {
      const args = ['restore', file, '--data', path.join(work, 'new'), '--seal-key', sealKey]
      return spawnSync(process.execPath, [MAIN, ...args], { encoding: 'utf8' })
    }
    flip(file, 'record', where)
    const { status, stderr } = restore()
    expect(status).toBe(2)
    expect(stderr).toMatch(/^keyturn: the backup .* is damaged .*nothing was restored\n$/)
    expect(existsSync(path.join(work, 'new/keyturn.db'))).toBe(false)
    flip(file, 'record', where)
    expect(restore().status).toBe(0)
  },
)
