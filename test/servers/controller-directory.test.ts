import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { Secret } from '../../src/lib/secret.ts'
import {
  APP,
  APP_DN,
  CORP,
  type ControllerWorld,
  eventually,
  PEOPLE,
  startControllerWorld,
} from '../support/controller-world.ts'
import { binds, type Slapd, slapdAvailable, startSlapd } from '../support/slapd.ts'
import { type Hook, startHook } from '../support/slapd-hook.ts'

/** What a mount's resource says of its directory, and how a new bind replaces one that works. */

let slapd: Slapd
let hook: Hook
let scratch: string
let world: ControllerWorld
let root: ControllerWorld['root']

beforeAll(async () => {
  if (!slapdAvailable()) return
  scratch = await mkdtemp(path.join(tmpdir(), 'kt-hook-'))
  const socket = path.join(scratch, 'hook')
  hook = await startHook(socket, () => 'CONTINUE')
  slapd = await startSlapd({ HOOK: socket })
})
afterAll(async () => {
  await slapd?.stop()
  await hook?.[Symbol.asyncDispose]()
  if (scratch) await rm(scratch, { recursive: true, force: true })
})
beforeEach(async () => {
  hook?.seen.splice(0)
  world = await startControllerWorld(slapd)
  root = world.root
})
afterEach(async () => world[Symbol.asyncDispose]())

const rotate = () => root.write('ldap/rotate-role/demo/app')
const login = () => root.login('ldap', 'alice', new Secret('alice-secret'))
const says = (ref: typeof APP, want: string, type?: string) =>
  eventually(() => expect(world.condition(ref, type)).toBe(want))
const bindSecret = (from: string, to: string) =>
  world.edit('00-secrets.yaml', (text) => text.replace(`password: ${from}`, `password: ${to}`))

describe.skipIf(!slapdAvailable())('a new bind', () => {
  test('that is refused leaves the one that works in force, and is presented once', async () => {
    await world.putSamples()
    await world.ready(APP)
    const applied = world.status(CORP).bindSecretMAC
    await bindSecret('svc-manager-secret', 'wrong')
    await says(CORP, 'False BindFailed', 'RootCredential')
    expect(world.condition(CORP)).toBe('False BindFailed')
    expect(world.condition(CORP, 'Stalled')).toBe('True NeedsUserAction')
    expect(world.condition(CORP, 'Connected')).toBe('True Connected')
    expect(world.status(CORP)).toMatchObject({ bindSecretMAC: applied, circuit: 'Closed' })
    await rotate()
    await eventually(async () => expect(await binds(slapd, APP_DN, await world.secret('password'))).toBe(true))
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 2 }))

    // Looked at for whatever reason, also by another process.
    await world.annotate('10-engine.yaml', 'keyturn.dev/reconcile-requested-at: "a"')
    await eventually(() => expect(world.status(CORP)).toMatchObject({ lastHandledReconcileRequest: 'a' }))
    await world.end()
    await world.start()
    await world.edit('10-engine.yaml', (text) => text.replace('requested-at: "a"', 'requested-at: "b"'))
    await eventually(() => expect(world.status(CORP)).toMatchObject({ lastHandledReconcileRequest: 'b' }))
    expect(world.condition(CORP)).toBe('False BindFailed')
    expect(hook.seen.filter(({ type, password }) => type === 'BIND' && password === 'wrong')).toHaveLength(1)

    await bindSecret('wrong', 'svc-manager-secret')
    await world.ready(CORP)
    expect(world.status(CORP)).not.toHaveProperty('refusedConfigMAC')
    await rotate()
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 3 }))
    expect(world.condition(APP)).toBe('True Ready')
  })

  test('of another account is taken when it binds', async () => {
    await world.putSamples()
    await world.ready(APP)
    await bindSecret('svc-manager-secret', 'admin-secret')
    await says(CORP, 'False BindFailed', 'RootCredential')
    await world.edit('10-engine.yaml', (text) =>
      text.replace('bindDN: cn=svc-manager,ou=services,dc=example,dc=test', 'bindDN: cn=admin,dc=example,dc=test'),
    )
    await world.ready(CORP)
    expect((await root.read('ldap/config'))?.data).toMatchObject({ binddn: 'cn=admin,dc=example,dc=test' })
    await rotate()
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 2 }))
  })

  test('of logins that is refused leaves people able to log in', async () => {
    await world.putSamples()
    await world.ready(PEOPLE)
    await bindSecret('svc-reader-secret', 'wrong')
    await says(PEOPLE, 'False BindFailed', 'Connected')
    expect(world.condition(PEOPLE)).toBe('False BindFailed')
    expect((await login()).auth).toMatchObject({ metadata: { username: 'alice' } })
    await bindSecret('wrong', 'svc-reader-secret')
    await world.ready(PEOPLE)
    await login()
  })

  test('that cannot be proven now waits, and the one before stays', async () => {
    await world.putSamples()
    await world.ready(APP)
    await slapd.crash()
    try {
      await bindSecret('svc-manager-secret', 'wrong')
      await says(CORP, 'False Unreachable')
      expect(world.condition(CORP, 'RootCredential')).toBe('False Unproven')
      await bindSecret('wrong', 'svc-manager-secret')
      await world.ready(CORP)
    } finally {
      await slapd.again()
    }
    await rotate()
    await eventually(() => expect(world.status(APP)).toMatchObject({ credentialVersion: 2 }))
  })
})

describe.skipIf(!slapdAvailable())('the condition Connected', () => {
  test('says that the first bind is refused, and that the next one works', async () => {
    await world.putSamples((text) => text.replace('password: svc-manager-secret', 'password: wrong'))
    await says(CORP, 'False BindFailed', 'Connected')
    expect(world.condition(CORP)).toBe('False BindFailed')
    expect(world.condition(CORP, 'RootCredential')).toBe('False BindFailed')
    expect(world.status(CORP)).toMatchObject({ circuit: 'Open' })
    expect((await root.read('ldap/config'))?.data).not.toHaveProperty('circuit')
    expect(world.condition(APP)).toMatch(/^False/)
    await bindSecret('wrong', 'svc-manager-secret')
    await world.ready(CORP)
    await world.ready(APP)
    expect(world.status(CORP)).toMatchObject({ circuit: 'Closed' })
  })

  test('says that the directory is away, and when it is back', async () => {
    await world.putSamples()
    await world.ready(APP)
    await world.ready(PEOPLE)
    await slapd.crash()
    try {
      await expect(rotate()).rejects.toThrow()
      await says(CORP, 'False Unreachable')
      expect(world.status(CORP)).toMatchObject({ circuit: 'Open' })
      await expect(login()).rejects.toThrow()
      await world.annotate('30-login.yaml', 'keyturn.dev/reconcile-requested-at: "a"')
      await says(PEOPLE, 'False Unreachable')
    } finally {
      await slapd.again()
    }
    // The engine tries the rotation again by itself, after up to 12 s.
    for (const ref of [CORP, APP]) await eventually(() => expect(world.condition(ref)).toBe('True Ready'), 30_000)
  }, 90_000)
})

test.skipIf(!slapdAvailable())('what the engine warns of is told by an event', async () => {
  await world.putSamples((text) =>
    text.replace('  groupAttr: cn\n', '  groupAttr: cn\n  userFilter: (mail={{.Username}})\n'),
  )
  await world.ready(PEOPLE)
  expect(world.eventsOf(PEOPLE)).toContainEqual(
    expect.objectContaining({ type: 'Warning', note: expect.stringContaining('userfilter') }),
  )
})
