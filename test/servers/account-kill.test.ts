import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { TurnStep } from '../../src/engine/account/turn-step.ts'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import { systemClock } from '../../src/lib/clock.ts'
import type { AppError } from '../../src/lib/errors.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { dnOf, MANAGER } from '../support/account-host.ts'
import { startLdapEngine, text } from '../support/ldap-engine.ts'
import { MODIFY_RESPONSE, startLdapProxy } from '../support/ldap-proxy.ts'
import { binds as binding, type Slapd, SUFFIX, startSlapd } from '../support/slapd.ts'
import { type Hook, type HookAnswer, startHook } from '../support/slapd-hook.ts'

const UID = 'lib-3'
const child = join(import.meta.dirname, '../support/account-child.ts')
const TURN: readonly TurnStep[] = [
  'decided',
  'pending-written',
  'entry-found',
  'about-to-modify',
  'modified',
  'promoted',
]

let slapd: Slapd
let hook: Hook
let work: string

beforeAll(async () => {
  work = await mkdtemp('/tmp/kt-kill-')
  const socket = join(work, 'hook')
  hook = await startHook(socket, () => 'CONTINUE')
  slapd = await startSlapd({ HOOK: socket })
})
afterAll(async () => {
  await slapd?.stop()
  await hook?.[Symbol.asyncDispose]()
  await rm(work, { recursive: true, force: true })
})

/** Starts the server of a store; resolves with what it tells of the stored password and how long after its beginning. */
async function start(store: string, uid: string, act: string, killAt = 'never') {
  const env = { ...process.env, NODE_COMPILE_CACHE: '/tmp/kt-compile-cache' }
  const server = spawn(process.execPath, [child, join(work, store), slapd.url, uid, act, killAt], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(server, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
  const lines = createInterface({ input: server.stdout })
  let begunMs = Number.NaN
  const last = new Promise<string>((resolve) => {
    lines.on('line', (line) => {
      // What comes before is Node's own start.
      if (line === 'begun') begunMs = performance.now()
      else resolve(line)
    })
  })
  const told = await Promise.race([last, ended.then(() => 'nothing')])
  return { server, ended, told, tookMs: performance.now() - begunMs }
}

/** Runs an act to the step at which the server kills itself. */
async function killedAt(store: string, uid: string, act: string, step: string): Promise<void> {
  const { ended } = await start(store, uid, act, step)
  expect(await ended, `${act} killed at ${step}`).toEqual([null, 'SIGKILL'])
}

async function expectServed(store: string, uid: string): Promise<void> {
  const { told, tookMs, ended } = await start(store, uid, 'check')
  expect(told).toBe('served')
  expect(tookMs).toBeLessThan(5_000)
  expect(await ended).toEqual([0, null])
}

describe('kill -9 of the server', () => {
  test.each(TURN)('in a creation at "%s"', async (step) => {
    await killedAt(`create-${step}`, 'static-1', 'create', step)
    await expectServed(`create-${step}`, 'static-1')
  })

  test.each(TURN)('in a rotation at "%s"', async (step) => {
    const store = `rotate-${step}`
    await (await start(store, 'static-2', 'create')).ended
    await killedAt(store, 'static-2', 'rotate', step)
    await expectServed(store, 'static-2')
  })

  test.each<readonly [TurnStep, TurnStep]>([
    ['modified', 'pending-found'],
    ['modified', 'pending-taken-over'],
    ['modified', 'entry-found'],
    ['modified', 'pending-proven'],
    ['modified', 'promoted'],
    ['pending-written', 'pending-not-set'],
    ['pending-written', 'about-to-modify'],
    ['pending-written', 'modified'],
    ['pending-written', 'promoted'],
  ])('in a rotation at "%s", then in its recovery at "%s"', async (first, second) => {
    const store = `recover-${first}-${second}`
    await (await start(store, 'lib-1', 'create')).ended
    await killedAt(store, 'lib-1', 'rotate', first)
    await killedAt(store, 'lib-1', 'check', second)
    await expectServed(store, 'lib-1')
  })

  test('200 times at random moments of endless rotations: no password is lost', async () => {
    const servers = ['static-1', 'static-2', 'lib-1', 'lib-2']
    const kills = 200 / servers.length
    await Promise.all(
      servers.map(async (uid) => {
        const store = `random-${uid}`
        await (await start(store, uid, 'create')).ended
        for (let kill = 1; kill <= kills; kill++) {
          const { server, told, ended } = await start(store, uid, 'loop')
          expect(told, `${uid} after ${kill - 1} kills`).toBe('served')
          await systemClock.sleep(systemRandom.integer(40))
          server.kill('SIGKILL')
          await ended
        }
        await expectServed(store, uid)
      }),
    )
  }, 600_000)
})

describe.each(['create', 'rotate'] as const)('kill -9 of the directory while a role is being changed: %s', (act) => {
  const POINTS = [...TURN, 'modify received', 'modify done, not answered'] as const

  test.each(POINTS)('at "%s"', async (point) => {
    let isArmed = false
    const steps = {
      async reached(now: TurnStep) {
        if (isArmed && now === point) await slapd.crash()
      },
    }
    await using proxy = await startLdapProxy(slapd.port)
    proxy.passes = (tag) => {
      if (!isArmed || tag !== MODIFY_RESPONSE || point !== 'modify done, not answered') return true
      void slapd.crash()
      return false
    }
    hook.handler = async ({ type }): Promise<HookAnswer> => {
      if (isArmed && type === 'MODIFY' && point === 'modify received') await slapd.crash()
      return 'CONTINUE'
    }
    await using engine = await startLdapEngine({ driver: createMemoryDriver(), steps })
    const bind = { binddn: MANAGER.name, bindpass: MANAGER.password.reveal() }
    const to = { url: proxy.url, userdn: SUFFIX, userattr: 'uid', request_timeout: 10, connection_timeout: 10 }
    await engine.write('config', { ...bind, ...to })
    engine.start()
    const create = () => engine.write('static-role/role', { username: UID, rotation_period: '1h' })
    if (act === 'rotate') await create()
    isArmed = true
    const asked = act === 'create' ? create() : engine.write('rotate-role/role')
    const outcome = await asked.then(
      () => 'done',
      (error: AppError) => error.message,
    )
    isArmed = false
    await slapd.again()
    const backMs = performance.now()
    const wasTakenBack = act === 'create' && outcome.includes('nothing was created')
    for (;;) {
      const cred = await engine.read('static-cred/role').catch(() => undefined)
      const binds = cred && (await binding(slapd, dnOf(UID), text(cred['password'])))
      if (wasTakenBack ? !cred : binds) break
      const stateNow = `after "${outcome}": ${JSON.stringify(cred)}`
      if (performance.now() - backMs > 5_000) throw new Error(`the stored password does not bind ${stateNow}`)
      await systemClock.sleep(20)
    }
    // And the account can be used, whatever became of the first try, as soon as the directory's return is noticed.
    if (wasTakenBack) await noticed(create)
    await noticed(() => engine.write('rotate-role/role'))
    expect(await binding(slapd, dnOf(UID), text((await engine.read('static-cred/role'))['password']))).toBe(true)
  })
})

async function noticed(work: () => Promise<unknown>): Promise<void> {
  const end = performance.now() + 5_000
  for (;;) {
    try {
      await work()
      return
    } catch (error) {
      if (performance.now() > end) throw error
      await systemClock.sleep(50)
    }
  }
}
