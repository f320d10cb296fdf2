import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type AccountState, rotationQueue, turningQueue } from '../../src/engine/account/account.ts'
import { createDirectoryGuard } from '../../src/engine/account/guard.ts'
import type { AccountHost } from '../../src/engine/account/host.ts'
import { createRotationWorker } from '../../src/engine/account/rotation-worker.ts'
import { createAccountTurner } from '../../src/engine/account/turn.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import type { Store } from '../../src/engine/storage/store.ts'
import { type Clock, systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { runWorker } from '../../src/lib/worker.ts'
import { dnOf, MANAGER, MOUNT, putAccount, settingsFor, testAccountKind, testHost } from '../support/account-host.ts'
import { startLdapEngine } from '../support/ldap-engine.ts'
import { MODIFY_RESPONSE, startLdapProxy } from '../support/ldap-proxy.ts'
import { memoryStore } from '../support/memory-store.ts'
import { agreeable, answerTo, OP, type ScriptedHandler, serveScripted } from '../support/scripted-ldap.ts'
import { type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { type Hook, type HookAnswer, type HookedSlapd, startHookedSlapd } from '../support/slapd-hook.ts'
import { TestClock } from '../support/test-clock.ts'

// What becomes of rotations in trouble, with everything in place: worker, back-off, guard and door; nobody helps from outside.

const log = createLogger({ level: 'silent' })
const never = new AbortController().signal
const MINUTE = 60_000

let store: Store

/** All that one process has over the store. `start` begins the worker. */
function process(hostOf: (uid: string) => AccountHost, clock: Clock = systemClock) {
  const deps = { clock, random: systemRandom, log }
  const door = createDirectoryDoor(deps)
  const guard = createDirectoryGuard({ store, ...deps })
  const turner = createAccountTurner({ door, guard, ...deps, isExclusive: true })
  const stop = new AbortController()
  const failures: unknown[] = []
  const hosts = {
    recordKind: testAccountKind,
    mounts: async () => [{ id: MOUNT }],
    hostFor: (_: string, key: string) => hostOf(key.slice(MOUNT.length + 1)),
    probe: async () => undefined,
  }
  const worker = createRotationWorker({ store, turner, guard, clock, log, isExclusive: true, hosts })
  let running: Promise<void> | undefined
  return {
    door,
    guard,
    start() {
      running = runWorker(worker, { clock, signal: stop.signal, onError: (error) => failures.push(error) })
    },
    turn: (uid: string) => turner.turn(hostOf(uid), 'manual', never).finally(() => worker.poke()),
    async [Symbol.asyncDispose]() {
      stop.abort()
      await turner[Symbol.asyncDispose]()
      await running
      await door[Symbol.asyncDispose]()
      expect(failures).toEqual([])
    },
  }
}

async function account(uid: string): Promise<AccountState> {
  const stored = await store.read(testAccountKind, `${MOUNT}/${uid}`)
  if (!stored) throw new Error(`no record of ${uid}`)
  return stored.value.account
}

async function until(condition: () => Promise<boolean>, limitMs: number): Promise<number> {
  const startMs = performance.now()
  while (!(await condition())) {
    if (performance.now() - startMs > limitMs) throw new Error(`it did not come true within ${limitMs} ms`)
    await systemClock.sleep(20)
  }
  return performance.now() - startMs
}

const names = (count: number) => Array.from({ length: count }, (_, i) => `u${i}`)
const put = (uid: string, dueAt: Date) => putAccount(store, uid, { password: `${uid}-secret`, dueAt })

describe('our own bind refused', () => {
  test('over half an hour, whatever asks and restarts: one bind in 5 minutes', async () => {
    const clock = new TestClock()
    store = await memoryStore(clock)
    let binds = 0
    let isRefusing = false
    const handler: ScriptedHandler = (request, socket, server) => {
      if (request.op !== OP.bind || !isRefusing) return agreeable(request, socket, server)
      binds += 1
      socket.write(answerTo(request, 49))
    }
    await using server = await serveScripted(handler)
    await using second = await serveScripted(handler)
    const settings = settingsFor([server.url, second.url])
    const hostOf = (uid: string) => testHost(uid, { store, settings, periodMs: MINUTE })
    for (const uid of names(8)) await put(uid, clock.now())
    const counts: number[] = []
    for (let restart = 0; restart < 3; restart++) {
      await using one = process(hostOf, clock)
      if (restart === 0) {
        // Bound while it was still right: these connections are closed when they are used again.
        await Promise.all(names(8).map((uid) => one.turn(uid)))
        isRefusing = true
        for (const socket of [...server.open, ...second.open]) socket.destroy()
      }
      one.start()
      for (let minute = 0; minute < 10; minute++) {
        await Promise.allSettled(names(8).map((uid) => one.turn(uid)))
        await clock.advance(MINUTE)
        // What was just begun talks to a real socket, which the clock knows nothing of.
        await Promise.allSettled(names(8).map((uid) => one.turn(uid)))
        counts.push(binds)
      }
    }
    expect(counts[0]).toBe(1)
    expect(counts.at(-1)).toBeGreaterThanOrEqual(6)
    expect(counts.at(-1)).toBeLessThanOrEqual(7)
  })

  test('is presented once where eight pooled connections turn out to be dead', async () => {
    store = await memoryStore()
    let isGone = false
    let refused = 0
    await using server = await serveScripted((request, socket, self) => {
      if (!isGone && request.op === OP.search) setTimeout(() => agreeable(request, socket, self), 50)
      else if (!isGone) agreeable(request, socket, self)
      else if (request.op === OP.bind) {
        refused += 1
        socket.write(answerTo(request, 49))
      } else socket.destroy()
    })
    const settings = settingsFor([server.url])
    await using one = process((uid) => testHost(uid, { store, settings }))
    for (const uid of names(8)) await put(uid, new Date(0))
    await Promise.all(names(8).map((uid) => one.turn(uid)))
    expect(server.accepted).toBe(8)
    isGone = true
    await Promise.allSettled(names(8).map((uid) => one.turn(uid)))
    expect(refused).toBe(1)
  })
})

test('a first server that is frozen again holds up only who finds it out', async () => {
  const clock = new TestClock()
  store = await memoryStore(clock)
  let isFrozen = false
  await using first = await serveScripted((_, socket) => {
    if (!isFrozen) socket.destroy()
  })
  await using second = await serveScripted(agreeable)
  const settings = settingsFor([first.url, second.url])
  await using one = process((uid) => testHost(uid, { store, settings }), clock)
  for (const uid of names(3)) await put(uid, new Date(0))
  await one.turn('u0')
  isFrozen = true
  const bindsBefore = first.requests.length
  // Its back-off of a second ends: the next one asks it again.
  await clock.advance(1_300)
  const ended: string[] = []
  const prober = one.turn('u1').finally(() => ended.push('u1'))
  await until(async () => first.requests.length > bindsBefore, 5_000)
  await Promise.all([one.turn('u0'), one.turn('u2')])
  expect(ended).toEqual([])
  expect(first.requests.length).toBe(bindsBefore + 1)
  for (const socket of first.open) socket.destroy()
  await prober
})

test('who waits for a place at a server asks it as the one before found it', async () => {
  store = await memoryStore()
  let connections = 0
  await using server = await serveScripted(agreeable, {
    onConnect: (socket) => {
      connections += 1
      socket.destroy()
    },
  })
  const deps = { clock: systemClock, random: systemRandom, log }
  await using door = createDirectoryDoor({ ...deps, limits: { perServer: 1 } })
  const guard = createDirectoryGuard({ store, ...deps })
  const settings = settingsFor([server.url])
  const session = () =>
    guard
      .run(MOUNT, (admission) => door.withSession(settings, MANAGER, never, async () => 'worked', { admission }))
      .catch(({ name }: Error) => name)
  expect(await Promise.all([session(), session(), session()])).toEqual(['DirectoryError', 'GuardClosed', 'GuardClosed'])
  expect(connections).toBe(1)
})

test('with 500 roles due and the directory down: less than one connection a second, all turned when it is back', async () => {
  store = await memoryStore()
  const roles = names(500)
  await Promise.all(roles.map((uid) => put(uid, new Date(0))))
  let connections = 0
  let isDown = true
  await using server = await serveScripted(agreeable, {
    onConnect: (socket) => {
      connections += 1
      if (isDown) socket.destroy()
    },
  })
  const settings = settingsFor([server.url])
  await using one = process((uid) => testHost(uid, { store, settings }))
  one.start()
  const startMs = performance.now()
  await systemClock.sleep(6_000)
  const seconds = (performance.now() - startMs) / 1_000
  expect(connections).toBeGreaterThan(1)
  // Some work begins before the first failure is known.
  expect(connections).toBeLessThanOrEqual(8 + seconds)
  const whileDown = connections
  isDown = false
  const tookMs = await until(async () => {
    const next = await store.nextDue(rotationQueue(MOUNT))
    const isInTheAir = (await store.nextDue(turningQueue(MOUNT))) !== undefined
    return !isInTheAir && next !== undefined && next > new Date(Date.now() + MINUTE)
  }, 50_000)
  for (const uid of roles) expect((await account(uid)).credentialVersion).toBe(2)
  console.log(
    `${whileDown} connections in ${seconds.toFixed(1)} s; 500 roles turned ${Math.round(tookMs)} ms after it was back`,
  )
})

describe('over a real directory', () => {
  let directory: HookedSlapd
  let hook: Hook
  let slapd: Slapd

  beforeAll(async () => {
    directory = await startHookedSlapd()
    ;({ slapd, hook } = directory)
  })
  afterAll(() => directory?.[Symbol.asyncDispose]())
  beforeEach(async () => {
    store = await memoryStore()
  })
  afterEach(() => {
    hook.handler = () => 'CONTINUE'
  })

  async function isServed(uid: string): Promise<boolean> {
    const { confirmed } = await account(uid)
    if (!confirmed) return false
    await using door = createDirectoryDoor({ clock: systemClock, random: systemRandom })
    return door.verify(settingsFor([slapd.url]), { name: dnOf(uid), password: confirmed.password }, never)
  }
  const isModify = (uid: string) => (op: { type: string; dn: string }) => op.type === 'MODIFY' && op.dn === dnOf(uid)

  test('a modify was done, its answer lost and the directory away: the stored password binds within 5 s of its return', async () => {
    await using proxy = await startLdapProxy(slapd.port)
    const settings = settingsFor([proxy.url])
    await using one = process((uid) => testHost(uid, { store, settings }))
    const uid = 'static-1'
    await put(uid, new Date(Date.now() + 60 * MINUTE))
    one.start()
    proxy.passes = (tag) => {
      proxy.isDown ||= tag === MODIFY_RESPONSE
      return !proxy.isDown
    }
    await expect(one.turn(uid)).rejects.toThrow(/not known yet/)
    expect(await isServed(uid)).toBe(false)
    await systemClock.sleep(4_000)
    proxy.passes = () => true
    proxy.isDown = false
    const tookMs = await until(() => isServed(uid), 5_000)
    console.log(`the stored password binds ${Math.round(tookMs)} ms after the directory's return`)
  })

  test('an outage of a mount with nothing to do is found to be over', async () => {
    await using proxy = await startLdapProxy(slapd.port)
    await using engine = await startLdapEngine({ driver: createMemoryDriver() })
    const bind = { binddn: MANAGER.name, bindpass: MANAGER.password.reveal() }
    await engine.write('config', { ...bind, url: proxy.url, userdn: SUFFIX, userattr: 'uid' })
    engine.start()
    proxy.isDown = true
    const role = { username: 'lib-3', rotation_period: '1h' }
    await expect(engine.write('static-role/a', role)).rejects.toThrow('nothing was created')
    const isOpen = async () => {
      const { reply } = await engine.request('read', 'config', { caller: { isController: true } })
      return JSON.stringify(reply).includes('"circuit":{"state":"closed"}')
    }
    expect(await isOpen()).toBe(false)
    proxy.isDown = false
    await until(isOpen, 6_000)
  })

  test('one role hangs and another found the server busy: a third is turned on time', async () => {
    const settings = settingsFor([slapd.url], { requestTimeoutMs: 15_000 })
    const late = Promise.withResolvers<HookAnswer>()
    let busy = 1
    hook.handler = (op) => {
      if (isModify('static-1')(op)) return late.promise
      if (isModify('static-2')(op) && busy-- > 0) return { code: 51 }
      return 'CONTINUE'
    }
    const now = Date.now()
    await put('static-1', new Date(0))
    await put('static-2', new Date(now + 300))
    await put('lib-1', new Date(now + 600))
    await using one = process((uid) => testHost(uid, { store, settings }))
    one.start()
    await until(async () => (await account('lib-1')).credentialVersion === 2, 12_000)
    expect(await isServed('lib-1')).toBe(true)
    late.resolve('CONTINUE')
    await until(() => isServed('static-1'), 20_000)
  })

  test('a directory that answers every modify with an error, asked again and again by hand: proofs are rare', async () => {
    const uid = 'lib-2'
    const settings = settingsFor([slapd.url])
    await using one = process((name) => testHost(name, { store, settings }))
    await put(uid, new Date(Date.now() + 60 * MINUTE))
    hook.handler = (op) => (op.type === 'MODIFY' ? { code: 80 } : 'CONTINUE')
    hook.seen.length = 0
    const failed = new Map<string, number>()
    for (let i = 0; i < 10; i++)
      await one.turn(uid).catch(({ message }) => failed.set(message, (failed.get(message) ?? 0) + 1))
    const proofs = hook.seen.filter(({ type, dn }) => type === 'BIND' && dn === dnOf(uid))
    expect([...failed.values()].reduce((sum, times) => sum + times)).toBe(10)
    // Each that fails is followed by one with the confirmed password, which succeeds: 5 in all, two more where a slow machine has used up most of
    // a back-off, 19 without any.
    expect(proofs.length).toBeLessThanOrEqual(9)
    expect(await isServed(uid)).toBe(true)
  })
})

test('a real password policy: a history that refuses what was pending, rules that refuse anything, and a lock that does not close', async () => {
  await using slapd = await policed()
  store = await memoryStore()
  const uid = 'locky'
  const dn = `uid=${uid},ou=people,${SUFFIX}`
  const settings = settingsFor([slapd.url])
  let length = 64
  const generate = () => new Secret(systemRandom.bytes(length).toString('hex').slice(0, length))
  const host = testHost(uid, { store, settings, target: { dn }, generate })
  await using one = process(() => host)
  await putAccount(store, uid, { password: 'locky-secret-1', dueAt: new Date(Date.now() + 60 * MINUTE) })
  const isServed = async () => {
    const password = (await account(uid)).confirmed?.password
    return password !== undefined && one.door.verify(settings, { name: dn, password }, never)
  }
  await one.turn(uid)
  const { confirmed: first } = await account(uid)
  await one.turn(uid)
  if (!first) throw new Error('nothing is confirmed')

  // As a crash leaves it: pending is a password that the directory had once and will not take again.
  const loaded = await host.load()
  if (!loaded) throw new Error('no record')
  const over = { generatedAt: new Date(0), maybeSent: true, heldUntil: new Date(0), holder: 'dead' }
  const pending = { password: first.password, ...over }
  await host.save(loaded, { account: { ...loaded.account, pending }, dueAt: new Date(0), events: [] })
  await one.turn(uid)
  expect((await account(uid)).credentialVersion).toBe(4)
  expect(await isServed()).toBe(true)

  length = 4
  await expect(one.turn(uid)).rejects.toMatchObject({ kind: 'invalid', reason: 'rejected' })
  expect(await isServed()).toBe(true)
})

async function policed() {
  const slapd = await startSlapd({ PPOLICY: '1' })
  return { ...slapd, [Symbol.asyncDispose]: () => slapd.stop() }
}
