import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createDirectoryGuard } from '../../src/engine/account/guard.ts'
import { createAccountTurner, type TurnStep } from '../../src/engine/account/turn.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { dnOf, MOUNT, putAccount, settingsFor, testAccountKind, testHost } from '../support/account-host.ts'
import { memoryStore } from '../support/memory-store.ts'
import { type Slapd, startSlapd } from '../support/slapd.ts'

const never = new AbortController().signal
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
let work: string

beforeAll(async () => {
  work = await mkdtemp('/tmp/kt-kill-')
  slapd = await startSlapd()
})
afterAll(async () => {
  await slapd?.stop()
  await rm(work, { recursive: true, force: true })
})

/** Starts the server of a store; resolves with what it tells of the stored password and how long that took. */
async function start(store: string, uid: string, act: string, killAt = 'never') {
  const startedMs = performance.now()
  const env = { ...process.env, NODE_COMPILE_CACHE: '/tmp/kt-compile-cache' }
  const server = spawn(process.execPath, [child, join(work, store), slapd.url, uid, act, killAt], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(server, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
  const lines = createInterface({ input: server.stdout })
  const told = await Promise.race([once(lines, 'line').then(([line]) => String(line)), ended.then(() => 'nothing')])
  return { server, ended, told, tookMs: performance.now() - startedMs }
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
  }, 180_000)
})

describe('kill -9 of the directory', () => {
  test.each(TURN)('at "%s"', async (step) => {
    const uid = 'lib-3'
    const store = await memoryStore()
    const deps = { clock: systemClock, random: systemRandom, log: createLogger({ level: 'silent' }) }
    const settings = settingsFor([slapd.url])
    await using door = createDirectoryDoor(deps)
    const guard = createDirectoryGuard({ store, ...deps })
    let isArmed = false
    const steps = {
      async reached(now: TurnStep) {
        if (isArmed && now === step) await slapd.crash()
      },
    }
    await using turner = createAccountTurner({ door, guard, ...deps, steps })
    const host = testHost(uid, { store, settings })
    await putAccount(store, uid, { dueAt: new Date() })
    await turner.turn(host, 'create', never)
    isArmed = true
    await turner.turn(host, 'manual', never).catch(() => undefined)
    isArmed = false
    await slapd.again()
    await guard.reset(MOUNT)
    await turner.turn(host, 'recover', never)
    const account = (await store.read(testAccountKind, `${MOUNT}/${uid}`))?.value.account
    const password = account?.confirmed?.password
    if (!password) throw new Error('no password is stored')
    expect(await door.verify(settings, { name: dnOf(uid), password }, never)).toBe(true)
    await turner.turn(host, 'manual', never)
  })
})
