import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { AccountState } from '../../src/engine/account/account.ts'
import { createDirectoryGuard } from '../../src/engine/account/guard.ts'
import { isProven, proveRestored } from '../../src/engine/account/restored.ts'
import { createRestoredWorker } from '../../src/engine/account/restored-worker.ts'
import { createRotationWorker } from '../../src/engine/account/rotation-worker.ts'
import { type AccountTurnerDeps, createAccountTurner } from '../../src/engine/account/turn.ts'
import type { DirectorySettings } from '../../src/engine/directory/directory.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { readRestoreMark, setRestoreMark } from '../../src/engine/storage/restore-mark.ts'
import type { Store } from '../../src/engine/storage/store.ts'
import { systemClock } from '../../src/lib/clock.ts'
import type { AppError } from '../../src/lib/errors.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { runWorker } from '../../src/lib/worker.ts'
import { dnOf, MANAGER, MOUNT, putAccount, settingsFor, testAccountKind, testHost } from '../support/account-host.ts'
import { MODIFY_RESPONSE, startLdapProxy } from '../support/ldap-proxy.ts'
import { memoryStore } from '../support/memory-store.ts'
import type { Slapd } from '../support/slapd.ts'
import { type Hook, type HookedSlapd, type HookOperation, startHookedSlapd } from '../support/slapd-hook.ts'

const log = createLogger({ level: 'silent' })
const never = new AbortController().signal
const UID = 'static-1'

let slapd: Slapd
let hook: Hook
let directory: HookedSlapd
let settings: DirectorySettings
/** Where the limit is waited for: long enough for what comes before on a slow machine. */
let brief: DirectorySettings
let store: Store

beforeAll(async () => {
  directory = await startHookedSlapd()
  ;({ slapd, hook } = directory)
  settings = settingsFor([slapd.url])
  brief = settingsFor([slapd.url], { requestTimeoutMs: 3_000 })
})
afterAll(() => directory?.[Symbol.asyncDispose]())

beforeEach(async () => {
  hook.handler = () => 'CONTINUE'
  store = await memoryStore()
  await resetPassword(UID)
  hook.seen.length = 0
})

/** Everything that one process has over a store. */
function process(options: Partial<AccountTurnerDeps> = {}) {
  const deps = { clock: systemClock, random: systemRandom, log }
  const door = createDirectoryDoor(deps)
  const guard = createDirectoryGuard({ store, ...deps })
  const turner = createAccountTurner({ door, guard, ...deps, ...options })
  return {
    door,
    guard,
    turner,
    async [Symbol.asyncDispose]() {
      await turner[Symbol.asyncDispose]()
      await door[Symbol.asyncDispose]()
    },
  }
}

const host = (uid = UID, more: Partial<Parameters<typeof testHost>[1]> = {}) =>
  testHost(uid, { store, settings, ...more })

async function existing(uid = UID, more: { since?: Date } = {}) {
  await putAccount(store, uid, { password: `${uid}-secret`, dueAt: new Date(0), ...more })
}
async function account(uid = UID): Promise<AccountState> {
  const stored = await store.read(testAccountKind, `${MOUNT}/${uid}`)
  if (!stored) throw new Error(`no record of ${uid}`)
  return stored.value.account
}
async function binds(uid: string, password: string | undefined): Promise<boolean> {
  await using one = process()
  return password !== undefined && one.door.verify(settings, { name: dnOf(uid), password: new Secret(password) }, never)
}
async function resetPassword(uid: string): Promise<void> {
  await using one = process()
  const values = [Buffer.from(`${uid}-secret`)]
  await one.door.withSession(settings, MANAGER, never, (session) =>
    session.replace(dnOf(uid), [{ attribute: 'userPassword', values }]),
  )
}
/** The stored password binds: the one thing that must hold after everything. */
async function expectServed(uid = UID): Promise<void> {
  expect(await binds(uid, (await account(uid)).confirmed?.password.reveal())).toBe(true)
}
const failure = (turn: Promise<unknown>): Promise<AppError> =>
  turn.then(
    () => {
      throw new Error('the turn should have failed')
    },
    (error) => error,
  )
const isModify = (op: HookOperation, uid = UID) => op.type === 'MODIFY' && op.dn === dnOf(uid)
const modifies = (uid = UID) => hook.seen.filter((op) => isModify(op, uid)).length
const bindsSeen = (dn: string) => hook.seen.filter((op) => op.type === 'BIND' && op.dn === dn).length
const eventTypes = async () => (await store.events(0, 100)).events.map(({ type }) => type)

async function until(condition: () => boolean | Promise<boolean>, limitMs = 10_000): Promise<void> {
  const end = performance.now() + limitMs
  while (!(await condition())) {
    if (performance.now() > end) throw new Error('the condition did not come true in time')
    await systemClock.sleep(10)
  }
}

describe('a turn', () => {
  test('sets a new password in the directory, keeps the old one, publishes', async () => {
    await existing()
    await using one = process()
    const { account: after } = await one.turner.turn(host(), 'manual', never)
    expect(after).toMatchObject({ credentialVersion: 2, dn: dnOf(UID) })
    expect(after.pending).toBeUndefined()
    expect(after.previous?.reveal()).toBe(`${UID}-secret`)
    expect(await binds(UID, after.confirmed?.password.reveal())).toBe(true)
    expect(await binds(UID, `${UID}-secret`)).toBe(false)
    const { events } = await store.events(0, 10)
    expect(events).toMatchObject([{ type: 'rotate', data: { credential_version: 2 } }])
    expect(modifies()).toBe(1)
  })

  test('ten asked for at once are one rotation and ten successes', async () => {
    await existing()
    await using one = process()
    const all = await Promise.all(Array.from({ length: 10 }, () => one.turner.turn(host(), 'manual', never)))
    expect(new Set(all.map(({ account: { credentialVersion } }) => credentialVersion))).toEqual(new Set([2]))
    expect(modifies()).toBe(1)
    await expectServed()
  })

  test('asked for at once in two processes is one rotation at a time, none lost', async () => {
    await existing()
    await using one = process()
    await using two = process()
    await Promise.all([one.turner.turn(host(), 'manual', never), two.turner.turn(host(), 'manual', never)])
    expect(modifies()).toBeLessThanOrEqual(2)
    await expectServed()
  })

  test('goes on when who asked goes away', async () => {
    await existing()
    await using one = process()
    const gate = Promise.withResolvers<'CONTINUE'>()
    hook.handler = (op) => (isModify(op) ? gate.promise : 'CONTINUE')
    const asking = new AbortController()
    const turn = one.turner.turn(host(), 'manual', asking.signal)
    await until(() => modifies() > 0)
    asking.abort(new Error('gone'))
    await expect(turn).rejects.toThrow('gone')
    gate.resolve('CONTINUE')
    await until(async () => (await account()).credentialVersion === 2)
    await expectServed()
  })

  test('keeps what somebody else wrote into the record meanwhile', async () => {
    await existing()
    await using one = process({
      steps: {
        async reached(step) {
          if (step !== 'modified') return
          const loaded = await host().load()
          if (loaded) await host().save(loaded, { account: loaded.account, dueAt: new Date(), events: [] })
        },
      },
    })
    await one.turner.turn(host(), 'manual', never)
    expect(modifies()).toBe(1)
    await expectServed()
  })
})

describe('the directory refuses', () => {
  test('the value: a new one is tried, at most 3 at once, then later', async () => {
    await existing()
    await using one = process()
    let rejections = 2
    const tried = new Set<string>()
    hook.handler = (op) => {
      if (!isModify(op)) return 'CONTINUE'
      tried.add(op.changes[0]?.values[0]?.toString() ?? '')
      rejections -= 1
      return rejections >= 0 ? { code: 19, info: 'too weak' } : 'CONTINUE'
    }
    await one.turner.turn(host(), 'manual', never)
    expect(tried.size).toBe(3)
    await expectServed()

    rejections = 1_000
    const error = await failure(one.turner.turn(host(), 'manual', never))
    expect(error).toMatchObject({ kind: 'invalid', message: expect.stringContaining('repeating the request is safe') })
    expect(tried.size).toBe(6)
    const { failure: recorded, pending } = await account()
    expect(recorded).toMatchObject({ class: 'rejected', count: 1 })
    expect(pending).toBeUndefined()
    await expectServed()
    for (const password of tried) expect(error.message).not.toContain(password)
  })

  test('again and again: one event, and the retry is not put off', async () => {
    await existing()
    await using one = process()
    hook.handler = (op) => (isModify(op) ? { code: 50 } : 'CONTINUE')
    for (let i = 0; i < 5; i++) await failure(one.turner.turn(host(), 'manual', never))
    expect(await eventTypes()).toEqual(['rotate-fail'])
    expect((await account()).failure).toMatchObject({ class: 'refused', count: 1 })
    expect(modifies()).toBe(5)
  })

  test.each([
    [
      'an entry that is not there',
      { userDn: 'ou=services,dc=example,dc=test', userAttr: 'uid', username: 'nobody' },
      /no entry/,
    ],
    ['a DN that is not there', { dn: 'uid=nobody,ou=services,dc=example,dc=test' }, /no entry/],
    [
      'a name that is not unique',
      { userDn: 'dc=example,dc=test', userAttr: 'objectClass', username: 'person' },
      /more than one/,
    ],
  ])('%s: nothing is created', async (_, target, message) => {
    await putAccount(store, UID, { dueAt: new Date() })
    await using one = process()
    const error = await failure(one.turner.turn(host(UID, { target }), 'create', never))
    expect(error).toMatchObject({ kind: 'invalid', message: expect.stringMatching(message) })
    expect(error.message).toContain('nothing was created')
    expect(await store.read(testAccountKind, `${MOUNT}/${UID}`)).toBeUndefined()
  })

  test('our rules refuse the entry: nothing is sent', async () => {
    await existing()
    await using one = process()
    const error = await failure(one.turner.turn(host(UID, { forbid: () => true }), 'manual', never))
    expect(error).toMatchObject({ kind: 'invalid', reason: 'not-permitted' })
    expect(modifies()).toBe(0)
    await expectServed()
  })

  test('our own bind: the guard closes, one bind is all it sees', async () => {
    await existing()
    await existing('static-2')
    const identity = { ...MANAGER, password: new Secret('outdated') }
    await using one = process()
    const turns = [UID, 'static-2', UID, 'static-2'].map((uid) =>
      failure(one.turner.turn(host(uid, { identity }), 'manual', never)),
    )
    for (const error of await Promise.all(turns)) expect(error.kind).toBe('unavailable')
    await failure(one.turner.turn(host(UID, { identity }), 'manual', never))
    await using restarted = process()
    await failure(restarted.turner.turn(host(UID, { identity }), 'manual', never))
    expect(bindsSeen(MANAGER.name)).toBe(1)
    expect(await one.guard.state(MOUNT)).toMatchObject({ isOpen: false, why: 'bind-refused' })
    expect((await account()).failure).toMatchObject({ class: 'bind-refused' })
    await restarted.guard.reset(MOUNT)
    await restarted.turner.turn(host(), 'manual', never)
    await expectServed()
  })
})

describe('the directory does not answer', () => {
  test('and cannot be reached: nothing is created, or the old password stays', async () => {
    const gone = settingsFor(['ldap://127.0.0.1:1'])
    await using one = process()
    await putAccount(store, 'new', { dueAt: new Date() })
    const created = await failure(one.turner.turn(testHost('new', { store, settings: gone }), 'create', never))
    expect(created).toMatchObject({ kind: 'unavailable', message: expect.stringContaining('nothing was created') })
    expect(await store.read(testAccountKind, `${MOUNT}/new`)).toBeUndefined()

    await existing()
    const rotated = await failure(one.turner.turn(testHost(UID, { store, settings: gone }), 'manual', never))
    expect(rotated).toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('repeating the request is safe'),
    })
    expect((await account()).pending?.maybeSent ?? false).toBe(false)
    await one.guard.reset(MOUNT)
    await one.turner.turn(host(), 'manual', never)
    await expectServed()
  })

  test('and is frozen: the outcome is known once it thaws', async () => {
    await existing()
    await using one = process()
    const hasty = host(UID, { settings: brief })
    await one.turner.turn(hasty, 'manual', never)
    await slapd.freeze()
    const error = await failure(one.turner.turn(hasty, 'manual', never)).finally(() => slapd.thaw())
    expect(error.kind).toBe('unavailable')
    await one.guard.reset(MOUNT)
    await one.turner.turn(host(), 'manual', never)
    await expectServed()
  })

  test('but did the modify before it dropped the connection: proven by one bind and promoted', async () => {
    await existing()
    await using one = process()
    await using proxy = await startLdapProxy(slapd.port)
    let lost = 0
    proxy.passes = (tag) => tag !== MODIFY_RESPONSE || ++lost > 1
    const remote = host(UID, { settings: settingsFor([proxy.url]) })
    const { account: after } = await one.turner.turn(remote, 'manual', never)
    expect(lost).toBe(1)
    expect(modifies()).toBe(1)
    expect(after.credentialVersion).toBe(2)
    expect(bindsSeen(dnOf(UID))).toBe(1)
    await expectServed()
  })

  test('and did not do the modify: pending is kept, then the same one is sent again', async () => {
    await existing()
    await using one = process()
    const sent: string[] = []
    const heard = Promise.withResolvers<void>()
    let held = true
    hook.handler = async (op) => {
      if (!isModify(op)) return 'CONTINUE'
      sent.push(op.changes[0]?.values[0]?.toString() ?? '')
      if (!held) return 'CONTINUE'
      await heard.promise
      return { code: 51 }
    }
    const hasty = host(UID, { settings: brief })
    const error = await failure(one.turner.turn(hasty, 'manual', never)).finally(heard.resolve)
    expect(error).toMatchObject({ kind: 'unavailable', message: expect.stringContaining('being resolved') })
    expect((await account()).pending).toMatchObject({ maybeSent: true, server: slapd.url })
    await expectServed()
    held = false
    await one.turner.turn(host(), 'recover', never)
    expect(new Set(sent).size).toBe(1)
    expect((await account()).confirmed?.password.reveal()).toBe(sent[0])
    await expectServed()
  })

  test('at a creation: the role is kept and comes into being', async () => {
    await putAccount(store, UID, { dueAt: new Date() })
    await using one = process()
    const heard = Promise.withResolvers<void>()
    hook.handler = async (op) => {
      if (!isModify(op)) return 'CONTINUE'
      await heard.promise
      return { code: 51 }
    }
    const hasty = host(UID, { settings: brief })
    const error = await failure(one.turner.turn(hasty, 'create', never)).finally(heard.resolve)
    expect(error.message).toContain('being resolved')
    hook.handler = () => 'CONTINUE'
    await one.turner.turn(host(), 'recover', never)
    const stored = await store.read(testAccountKind, `${MOUNT}/${UID}`)
    expect(stored?.value.creating).toBe(false)
    await expectServed()
  })
})

describe('a pending password found', () => {
  /** A process that ends right after it reached a step, as by a crash. */
  async function crashAt(step: string, whose = UID): Promise<void> {
    const end = new Error('crashed')
    const one = process({ steps: { reached: (now) => (now === step ? Promise.reject(end) : undefined) } })
    await expect(one.turner.turn(host(whose), 'manual', never)).rejects.toBe(end)
    await one.door[Symbol.asyncDispose]()
  }

  test('and set: promoted by one bind, not sent again', async () => {
    await existing()
    await crashAt('modified')
    hook.seen.length = 0
    await using next = process({ isExclusive: true })
    await next.turner.turn(host(), 'recover', never)
    expect(modifies()).toBe(0)
    expect(bindsSeen(dnOf(UID))).toBe(1)
    await expectServed()
  })

  test('of another process that may live is left alone until its time is over', async () => {
    await existing()
    await crashAt('modified')
    await using next = process()
    const turn = next.turner.turn(host(), 'manual', AbortSignal.timeout(600))
    await expect(turn).rejects.toThrow()
    expect((await account()).credentialVersion).toBe(1)
  })

  test('that the directory now refuses is given up only when the confirmed one binds', async () => {
    await existing()
    await crashAt('pending-written')
    await expireHold()
    hook.handler = (op) => (isModify(op) ? { code: 19 } : 'CONTINUE')
    await using next = process({ isExclusive: true })
    await next.turner.turn(host(), 'recover', never)
    expect(await account()).toMatchObject({ credentialVersion: 1 })
    expect((await account()).pending).toBeUndefined()
    await expectServed()
  })

  test('stays when another server may have been told, whatever binds on the one that was asked', async () => {
    await existing()
    await crashAt('about-to-modify')
    await expireHold()
    hook.handler = (op) => (isModify(op) ? { code: 10 } : 'CONTINUE')
    await using next = process({ isExclusive: true })
    const two = { ...settings, urls: [slapd.url, 'ldap://127.0.0.1:1'] }
    await failure(next.turner.turn(host(UID, { settings: two }), 'recover', never))
    expect((await account()).pending).toMatchObject({ maybeSent: true })
    await expectServed()
  })

  test('of a creation, given up but perhaps set, keeps its record until a new one is proven', async () => {
    await putAccount(store, UID, { dueAt: new Date() })
    const end = new Error('crashed')
    const first = process({ steps: { reached: (now) => (now === 'modified' ? Promise.reject(end) : undefined) } })
    await expect(first.turner.turn(host(), 'create', never)).rejects.toBe(end)
    await first.door[Symbol.asyncDispose]()
    await expireHold()
    const set = (await account()).pending?.password.reveal()
    // The account is locked and its password too young to change: nothing binds, every new one is refused.
    hook.handler = (op) => {
      if (op.type === 'BIND' && op.dn === dnOf(UID)) return { code: 49 }
      return isModify(op) ? { code: 19 } : 'CONTINUE'
    }
    await using next = process({ isExclusive: true })
    await next.turner.turn(host(), 'recover', never)
    await failure(next.turner.turn(host(), 'due', never))
    expect((await account()).abandoned?.reveal()).toBe(set)
    hook.handler = () => 'CONTINUE'
    expect(await binds(UID, set)).toBe(true)
    await next.turner.turn(host(), 'due', never)
    await expectServed()
  })

  test('is kept while its entry is gone', async () => {
    await existing()
    await crashAt('modified')
    await expireHold()
    const pending = (await account()).pending?.password.reveal()
    await using next = process({ isExclusive: true })
    const nowhere = { userDn: 'ou=services,dc=example,dc=test', userAttr: 'uid', username: 'vanished' }
    const error = await failure(next.turner.turn(host(UID, { target: nowhere }), 'recover', never))
    expect(error.kind).toBe('invalid')
    expect((await account()).pending?.password.reveal()).toBe(pending)
    await next.turner.turn(host(), 'recover', never)
    expect((await account()).confirmed?.password.reveal()).toBe(pending)
    await expectServed()
  })

  test('and refused with nothing that binds stays on record beside the new one', async () => {
    await existing()
    await crashAt('modified')
    await expireHold()
    const pending = (await account()).pending?.password.reveal()
    // The account is locked: no bind works, and a history refuses what is set already.
    hook.handler = (op) => {
      if (op.type === 'BIND' && op.dn === dnOf(UID)) return { code: 49 }
      return isModify(op) ? { code: 19 } : 'CONTINUE'
    }
    await using next = process({ isExclusive: true })
    await next.turner.turn(host(), 'recover', never)
    expect((await account()).abandoned?.reveal()).toBe(pending)
    hook.handler = () => 'CONTINUE'
    await next.turner.turn(host(), 'due', never)
    expect((await account()).abandoned).toBeUndefined()
    await expectServed()
  })

  async function expireHold(): Promise<void> {
    const loaded = await host().load()
    if (!loaded?.account.pending) throw new Error('nothing is pending')
    const pending = { ...loaded.account.pending, heldUntil: new Date(0) }
    await host().save(loaded, { account: { ...loaded.account, pending }, dueAt: new Date(0), events: [] })
  }
})

describe('the worker', () => {
  function start(one: ReturnType<typeof process>, mounts = [MOUNT], isExclusive = true) {
    const stop = new AbortController()
    // Longer than any test waits: what hangs hangs.
    const patient = settingsFor([slapd.url], { requestTimeoutMs: 30_000 })
    let looks = 0
    const worker = createRotationWorker({
      store,
      turner: one.turner,
      guard: one.guard,
      clock: systemClock,
      log,
      isExclusive,
      hosts: {
        recordKind: testAccountKind,
        async mounts() {
          looks += 1
          return mounts.map((id) => ({ id }))
        },
        probe: async () => undefined,
        hostFor: (mountId, key) =>
          testHost(key.slice(mountId.length + 1), {
            store,
            mountId,
            settings: mountId === 'down' ? settingsFor(['ldap://127.0.0.1:1']) : patient,
          }),
      },
    })
    const failures: unknown[] = []
    const running = runWorker(worker, { clock: systemClock, signal: stop.signal, onError: (e) => failures.push(e) })
    return {
      worker,
      looks: () => looks,
      async [Symbol.asyncDispose]() {
        stop.abort()
        await running
        expect(failures).toEqual([])
      },
    }
  }

  test('turns what is due; a hanging role and a dead directory delay nobody', async () => {
    await existing(UID)
    for (const uid of ['lib-1', 'lib-2', 'lib-3']) await existing(uid)
    for (const uid of ['a', 'b']) await putAccount(store, uid, { mountId: 'down', password: 'x', dueAt: new Date(0) })
    const gate = Promise.withResolvers<'CONTINUE'>()
    hook.handler = (op) => (isModify(op) ? gate.promise : 'CONTINUE')
    await using one = process()
    await using _ = start(one, ['down', MOUNT])
    for (const uid of ['lib-1', 'lib-2', 'lib-3']) await until(async () => (await account(uid)).credentialVersion === 2)
    gate.resolve('CONTINUE')
    await until(async () => (await account(UID)).credentialVersion === 2)
    for (const uid of [UID, 'lib-1', 'lib-2', 'lib-3']) await expectServed(uid)
    for (const uid of ['lib-1', 'lib-2', 'lib-3']) await resetPassword(uid)
  })

  test('is woken by what becomes due', async () => {
    await using one = process()
    await existing('lib-1')
    await using running = start(one)
    const isTurned = async (uid: string) => (await account(uid)).credentialVersion === 2
    // It was due at the first look, which is over then.
    await until(() => isTurned('lib-1'))
    await existing()
    running.worker.poke()
    // Sooner than it would look by itself.
    await until(() => isTurned(UID), 8_000)
    await expectServed()
    await resetPassword('lib-1')
  })

  test('at the start of the only server resolves what a dead one held', async () => {
    await existing()
    const end = new Error('crashed')
    const dead = process({ steps: { reached: (now) => (now === 'modified' ? Promise.reject(end) : undefined) } })
    await expect(dead.turner.turn(host(), 'manual', never)).rejects.toBe(end)
    await dead.door[Symbol.asyncDispose]()
    await using one = process({ isExclusive: true })
    await using _ = start(one)
    await until(async () => (await account()).credentialVersion === 2)
    await expectServed()
  })

  test('leaves due roles alone while the guard is closed', async () => {
    await existing()
    await using one = process()
    await one.guard
      .run(MOUNT, (admission) =>
        one.door.withSession(settings, { ...MANAGER, password: new Secret('wrong') }, never, async () => 0, {
          admission,
        }),
      )
      .catch(() => 0)
    hook.seen.length = 0
    await using running = start(one)
    for (let looks = 1; looks <= 3; looks++) {
      await until(() => running.looks() >= looks)
      running.worker.poke()
    }
    expect(hook.seen.filter(({ type }) => type !== 'UNBIND')).toEqual([])
    const stored = await store.read(testAccountKind, `${MOUNT}/${UID}`)
    expect(stored?.due?.at).toEqual(new Date(0))
  })
})

describe('after a restore', () => {
  const mark = { at: new Date('2026-01-02T00:00:00Z'), version: 0 }
  const since = new Date('2026-01-01T00:00:00Z')

  test('a password is proven by one bind, once', async () => {
    await existing(UID, { since })
    expect(isProven(await account(), mark)).toBe(false)
    await using one = process()
    const deps = { ...one, clock: systemClock, log }
    await proveRestored(deps, host(), mark, never)
    await proveRestored(deps, host(), mark, never)
    expect(isProven(await account(), mark)).toBe(true)
    expect(bindsSeen(dnOf(UID))).toBe(1)
    expect(modifies()).toBe(0)
  })

  test('one that no longer binds is drifted and turned anew', async () => {
    await putAccount(store, UID, { password: 'of the backup', dueAt: new Date(0), since })
    await using one = process()
    const after = await proveRestored({ ...one, clock: systemClock, log }, host(), mark, never)
    expect(isProven(after.account, mark)).toBe(true)
    expect(await eventTypes()).toEqual(['drift', 'rotate'])
    await expectServed()
  })

  test('nothing is served while the directory cannot tell', async () => {
    await existing(UID, { since })
    await using one = process()
    const gone = testHost(UID, { store, settings: settingsFor(['ldap://127.0.0.1:1']) })
    const error = await failure(proveRestored({ ...one, clock: systemClock, log }, gone, mark, never))
    expect(error.kind).toBe('unavailable')
    expect(isProven(await account(), mark)).toBe(false)
  })

  test('the worker proves every account, then clears the mark', async () => {
    await existing(UID, { since })
    await putAccount(store, 'lib-1', { password: 'of the backup', dueAt: new Date(0), since })
    await store.commit([setRestoreMark(mark.at)])
    await using one = process()
    let limits = settingsFor([slapd.url], { requestTimeoutMs: 700 })
    const hosts = {
      recordKind: testAccountKind,
      mounts: async () => [{ id: MOUNT }],
      hostFor: (_: string, key: string) => host(key.slice(MOUNT.length + 1), { settings: limits }),
      probe: async () => undefined,
    }
    const worker = createRestoredWorker({ ...one, store, clock: systemClock, log, hosts })
    await slapd.freeze()
    await worker.tick(never).finally(() => slapd.thaw())
    expect(await readRestoreMark(store)).toBeDefined()
    limits = settings
    await one.guard.reset(MOUNT)
    await worker.tick(never)
    expect(await readRestoreMark(store)).toBeUndefined()
    for (const uid of [UID, 'lib-1']) await expectServed(uid)
    expect(await eventTypes()).toEqual(['drift', 'rotate'])
    await resetPassword('lib-1')
  })
})
