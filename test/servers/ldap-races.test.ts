import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import type { TurnSteps } from '../../src/engine/account/turn-step.ts'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import { tenancyBody, writeTenancy } from '../../src/engine/tenancy/table.ts'
import { type LdapEngine, MOUNT, startLdapEngine, tenant, text } from '../support/ldap-engine.ts'
import { binds, type Slapd, SUFFIX } from '../support/slapd.ts'
import {
  type Hook,
  type HookAnswer,
  type HookedSlapd,
  type HookOperation,
  startHookedSlapd,
} from '../support/slapd-hook.ts'
import { TestClock } from '../support/test-clock.ts'

// What is written to roles and configurations while something is on its way to the directory.

const MANAGER = `cn=svc-manager,ou=services,${SUFFIX}`
const dnOf = (uid: string) => `uid=${uid},ou=services,${SUFFIX}`
/** Longer than any of the deadlines below let a modify be on its way. */
const HELD_MS = 20_000

let directory: HookedSlapd
let hook: Hook
let slapd: Slapd
let engine: LdapEngine
let clock: TestClock

beforeAll(async () => {
  directory = await startHookedSlapd()
  ;({ slapd, hook } = directory)
})
afterAll(() => directory?.[Symbol.asyncDispose]())
beforeEach(async () => {
  hook.handler = () => 'CONTINUE'
  clock = new TestClock()
  engine = await startLdapEngine({ driver: createMemoryDriver(), clock })
  await engine.write('config', config())
})
afterEach(() => engine[Symbol.asyncDispose]())

const config = () => ({
  binddn: MANAGER,
  bindpass: 'svc-manager-secret',
  url: slapd.url,
  userdn: SUFFIX,
  userattr: 'uid',
  request_timeout: 10,
  connection_timeout: 10,
})
/** For a test that waits for the limit; the bind and the search before what hangs must be answered within it. */
const withShortLimit = () => engine.write('config', { request_timeout: 3 })
const role = (username: string) => ({ username, rotation_period: '1h' })
const served = async (name: string) => text((await engine.read(`static-cred/${name}`))['password'])
const told = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'done',
    (error) => `${error.kind}: ${error.message}`,
  )

/** Holds the first operation that fits in the directory until it is let go. */
function holdFirst(isMeant: (operation: HookOperation) => boolean) {
  const begun = Promise.withResolvers<void>()
  const gate = Promise.withResolvers<HookAnswer>()
  let isHeld = false
  hook.handler = (operation) => {
    if (isHeld || !isMeant(operation)) return 'CONTINUE'
    isHeld = true
    begun.resolve()
    return gate.promise
  }
  return { begun: begun.promise, release: () => gate.resolve('CONTINUE') }
}
const isModifyOf = (uid: string) => (operation: HookOperation) =>
  operation.type === 'MODIFY' && operation.dn === dnOf(uid)

test('a role deleted while its password is being sent: nobody else gets the account before it must have arrived', async () => {
  await engine.write('static-role/a', role('static-1'))
  await withShortLimit()
  const held = holdFirst(isModifyOf('static-1'))
  const rotation = told(engine.write('rotate-role/a'))
  await held.begun
  await engine.request('delete', 'static-role/a')
  expect(await rotation).toContain('unavailable')
  expect(await told(engine.write('static-role/b', role('static-1')))).toMatch(/unavailable: .*may not have ended yet/)
  held.release()
  await clock.advance(HELD_MS)
  await engine.write('static-role/b', role('static-1'))
  expect(await binds(slapd, dnOf('static-1'), await served('b'))).toBe(true)
})

test('a role deleted while its password is being sent and arrives: its account is free at once', async () => {
  await engine.write('static-role/a', role('static-1'))
  const held = holdFirst(isModifyOf('static-1'))
  const rotation = told(engine.write('rotate-role/a'))
  await held.begun
  const deletion = engine.request('delete', 'static-role/a')
  held.release()
  await deletion
  expect(await rotation).toBe('done')
  await engine.write('static-role/b', role('static-1'))
  expect(await binds(slapd, dnOf('static-1'), await served('b'))).toBe(true)
})

test('a role deleted while its entry is being looked for: nothing is sent any more', async () => {
  await engine.write('static-role/a', role('static-2'))
  const last = await served('a')
  await withShortLimit()
  const held = holdFirst(({ type }) => type === 'SEARCH')
  const rotation = told(engine.write('rotate-role/a'))
  await held.begun
  hook.seen.length = 0
  // Whoever answers first: the search is given up when its time is over, or it is answered and the record is gone.
  await engine.request('delete', 'static-role/a')
  held.release()
  await rotation
  expect(hook.seen.filter(isModifyOf('static-2'))).toEqual([])
  expect(await binds(slapd, dnOf('static-2'), last)).toBe(true)
})

test('the same role made anew while the deleted one’s rotation still hangs is a role of its own', async () => {
  await engine.write('static-role/a', role('lib-1'))
  await withShortLimit()
  const held = holdFirst(isModifyOf('lib-1'))
  const rotation = told(engine.write('rotate-role/a'))
  await held.begun
  const deletion = engine.request('delete', 'static-role/a')
  const another = told(engine.write('static-role/a', role('lib-2')))
  await deletion
  await rotation
  held.release()
  // Before the deletion it was an update of the role that was there.
  if ((await another) !== 'done') await engine.write('static-role/a', role('lib-2'))
  expect(await binds(slapd, dnOf('lib-2'), await served('a'))).toBe(true)
})

test('a refused bind of the configuration before does not close the corrected one', async () => {
  await engine.write('static-role/e', role('lib-2'))
  await engine.write('config', { bindpass: 'wrong' })
  const held = holdFirst(({ type, dn }) => type === 'BIND' && dn === MANAGER)
  const old = told(engine.write('rotate-role/e'))
  await held.begun
  await engine.write('config', { bindpass: 'svc-manager-secret' })
  held.release()
  expect(await old).toContain('unavailable')
  expect(await told(engine.write('rotate-role/e'))).toBe('done')
})

test('a configuration corrected between the start of a turn and its bind: the one before is not bound with any more', async () => {
  let correct: (() => Promise<unknown>) | undefined
  const steps: TurnSteps = {
    async reached(step) {
      if (step !== 'pending-written') return
      const now = correct
      correct = undefined
      await now?.()
    },
  }
  await using own = await startLdapEngine({ driver: createMemoryDriver(), clock, steps })
  await own.write('config', config())
  await own.write('static-role/a', role('static-2'))
  await own.write('config', { bindpass: 'wrong', request_timeout: 20 })
  correct = () => own.write('config', { bindpass: 'svc-manager-secret' })
  expect(await told(own.write('rotate-role/a'))).toBe('done')
  const { password } = await own.read('static-cred/a')
  expect(await binds(slapd, dnOf('static-2'), text(password))).toBe(true)
})

test('a configuration corrected before a tenant’s account is looked for: the one before is not bound with any more', async () => {
  const driver = createMemoryDriver()
  await using own = await startLdapEngine({ driver, clock })
  await own.write('config', config())
  const entry = { principals: ['kubernetes:a'], kinds: ['StaticRole'], allowed_dns: [SUFFIX] }
  const { value: table } = tenancyBody.parse({ entries: [entry] })
  await own.store.commit([writeTenancy(MOUNT.id, { entries: table.entries ?? [] })])
  await own.write('config', { bindpass: 'wrong', request_timeout: 2 })
  const get = driver.get.bind(driver)
  // The bounds of a tenant are read after the configuration, and before the directory is asked.
  driver.get = async (key) => {
    if (!key.startsWith('tenancy/')) return get(key)
    driver.get = get
    await own.write('config', { bindpass: 'svc-manager-secret' })
    return get(key)
  }
  expect(await told(own.write('static-role/a/app', role('static-2'), tenant('a')))).toBe('done')
  expect(driver.get).toBe(get)
})

test('the same configuration written again asks for no other bind while ours is refused', async () => {
  await engine.write('static-role/f', role('lib-3'))
  await engine.write('config', { bindpass: 'wrong' })
  hook.seen.length = 0
  for (let i = 0; i < 5; i++) {
    await engine.write('config', { bindpass: 'wrong', length: 20 + i })
    expect(await told(engine.write('rotate-role/f'))).toContain('unavailable')
  }
  expect(hook.seen.filter(({ type, dn }) => type === 'BIND' && dn === MANAGER)).toHaveLength(1)
})

test('two mounts of one directory do not both manage an account', async () => {
  await using other = await engine.beside({ ...MOUNT, id: 'mount-2', path: 'other/' })
  await engine.write('static-role/a', role('static-1'))
  await other.write('config', { ...config(), url: `${slapd.url}/` })
  for (const asked of [role('static-1'), { ...role('any'), dn: dnOf('static-1').toUpperCase() }])
    expect(await told(other.write('static-role/b', asked))).toMatch(/already managed by another role of another mount/)
  expect(await binds(slapd, dnOf('static-1'), await served('a'))).toBe(true)
  await engine.request('delete', 'static-role/a')
  expect(await told(other.write('static-role/b', role('static-1')))).toBe('done')
  await other.unmount()
  expect(await told(engine.write('static-role/a', role('static-1')))).toBe('done')
})
