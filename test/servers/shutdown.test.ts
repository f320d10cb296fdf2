import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Keyturn, startKeyturn } from '../support/keyturn.ts'
import { binds, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { type Hook, type HookAnswer, startHook } from '../support/slapd-hook.ts'

// SIGTERM while something is going on: what was begun is finished and answered, within limits, and the exit code is 0.

let slapd: Slapd
let hook: Hook
let work: string
const dn = `uid=static-1,ou=services,${SUFFIX}`

beforeAll(async () => {
  work = await mkdtemp(path.join(tmpdir(), 'kt-hook-'))
  hook = await startHook(path.join(work, 'hook'), () => 'CONTINUE')
  slapd = await startSlapd({ HOOK: path.join(work, 'hook') })
})
afterAll(async () => {
  await slapd?.stop()
  await hook?.[Symbol.asyncDispose]()
  await rm(work, { recursive: true, force: true })
})

async function started(): Promise<Keyturn> {
  const keyturn = await startKeyturn()
  const written = await keyturn.call('POST', 'ldap/config', {
    url: slapd.url,
    binddn: `cn=svc-manager,ou=services,${SUFFIX}`,
    bindpass: 'svc-manager-secret',
    userdn: `ou=services,${SUFFIX}`,
    userattr: 'uid',
  })
  expect(written.status, written.text).toBe(204)
  const created = await keyturn.call('POST', 'ldap/static-role/app', { username: 'static-1', rotation_period: '24h' })
  expect(created.status, created.text).toBe(204)
  return keyturn
}

/** Holds the next modify of the account; tells when it has come and lets it go. */
function holdModify() {
  const come = Promise.withResolvers<void>()
  const go = Promise.withResolvers<void>()
  hook.handler = async (operation): Promise<HookAnswer> => {
    if (operation.type === 'MODIFY' && operation.dn === dn) {
      come.resolve()
      await go.promise
    }
    return 'CONTINUE'
  }
  return { come: come.promise, go: go.resolve }
}

test('a rotation that hangs in the directory is finished and answered', async () => {
  const keyturn = await started()
  const { come, go } = holdModify()
  try {
    const { last } = (await keyturn.call('GET', 'sys/events')).body.data
    const rotated = keyturn.call('POST', 'ldap/rotate-role/app')
    const waiting = keyturn.call('GET', `sys/events?after=${last}&wait=60s`)
    await come
    // Of the first look it has both lines, of the one that waits the first.
    const lines = async () =>
      (await readFile(path.join(keyturn.dataDir, 'audit.log'), 'utf8')).split('"path":"sys/events"').length - 1
    await expect.poll(lines, { timeout: 20_000 }).toBe(3)
    const startMs = performance.now()
    const ended = keyturn.end('SIGTERM')
    // Who only waits for news is sent away at once, while the rotation is still held.
    expect((await waiting).status).toBe(503)
    await expect.poll(() => keyturn.output).toContain('stopping')
    await expect(keyturn.call('GET', 'sys/health', undefined, { token: null })).rejects.toThrow()
    go()
    expect((await rotated).status).toBe(204)
    expect(await ended).toBe(0)
    expect(performance.now() - startMs).toBeLessThan(10_000)
    expect(keyturn.output).toContain('stopped')
    await keyturn.again()
    const { data } = (await keyturn.call('GET', 'ldap/static-cred/app')).body
    expect(data.last_password).not.toBe('')
    expect(await binds(slapd, dn, data.password)).toBe(true)
  } finally {
    go()
    await keyturn.stop()
  }
})

test('one that does not end in time is answered 503, the process ends with 0, and nothing is lost', async () => {
  const keyturn = await started()
  const { come, go } = holdModify()
  try {
    const rotated = keyturn.call('POST', 'ldap/rotate-role/app')
    await come
    const startMs = performance.now()
    const ended = keyturn.end('SIGTERM')
    const answer = await rotated
    expect(answer.status, answer.text).toBe(503)
    expect(await ended).toBe(0)
    expect(performance.now() - startMs).toBeLessThan(30_000)
    // The directory gets to it only now: the outcome is unknown to the store.
    go()
    await keyturn.again()
    const end = performance.now() + 10_000
    for (;;) {
      const { status, body } = await keyturn.call('GET', 'ldap/static-cred/app')
      if (status === 200 && (await binds(slapd, dn, body.data.password))) break
      if (performance.now() > end) throw new Error(`the stored password does not bind: ${JSON.stringify(body)}`)
      await sleep(100)
    }
  } finally {
    go()
    await keyturn.stop()
  }
})
