import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { rotationQueue, turningQueue } from '../../src/engine/account/account.ts'
import { createDirectoryGuard } from '../../src/engine/account/guard.ts'
import { createRotationWorker } from '../../src/engine/account/rotation-worker.ts'
import { createAccountTurner } from '../../src/engine/account/turn.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { openFileSeal } from '../../src/engine/seal/file-seal.ts'
import { openDriver, openStore } from '../../src/engine/storage/open.ts'
import { systemClock as clock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom as random } from '../../src/lib/random.ts'
import { runWorker } from '../../src/lib/worker.ts'
import { MANAGER, MOUNT, putAccount, settingsFor, testAccountKind, testHost } from '../support/account-host.ts'
import { SUFFIX, startSlapd } from '../support/slapd.ts'

const ROLES = 1_000
const PARALLEL = 8
const never = new AbortController().signal
const log = createLogger({ level: 'silent' })

test('1,000 roles due at once are rotated and none is lost', async () => {
  const directory = await mkdtemp('/tmp/kt-thousand-')
  const slapd = await startSlapd({ BULK: String(ROLES), SYNC: '1' })
  const stop = new AbortController()
  try {
    await using driver = openDriver(directory)
    const seal = openFileSeal(join(directory, 'seal-key'), { createIfMissing: true })
    const store = await openStore({ driver, seal, clock })
    await using door = createDirectoryDoor({ clock, random })
    const guard = createDirectoryGuard({ store, clock, random, log })
    await using turner = createAccountTurner({ door, guard, clock, random, log, isExclusive: true })
    const settings = settingsFor([slapd.url], { requestTimeoutMs: 20_000 })
    const uids = Array.from({ length: ROLES }, (_, i) => `bulk-${i + 1}`)
    const dnOf = (uid: string) => `uid=${uid},ou=bulk,${SUFFIX}`

    const modifiesPerSecond = await rate(uids, async (uid) => {
      const values = [Buffer.from(`${uid}-first`)]
      await door.withSession(settings, MANAGER, never, (session) =>
        session.replace(dnOf(uid), [{ attribute: 'userPassword', values }]),
      )
    })

    await Promise.all(uids.map((uid) => putAccount(store, uid, { password: `${uid}-first`, dueAt: clock.now() })))
    const hosts = {
      recordKind: testAccountKind,
      mounts: async () => [{ id: MOUNT }],
      probe: async () => undefined,
      hostFor: (mountId: string, key: string) => {
        const uid = key.slice(mountId.length + 1)
        return testHost(uid, { store, settings, target: { dn: dnOf(uid) } })
      },
    }
    const worker = createRotationWorker({ store, turner, guard, clock, log, isExclusive: true, hosts })
    const startedMs = performance.now()
    const running = runWorker(worker, { clock, signal: stop.signal, onError: (error) => stop.abort(error) })
    // Records that are only claimed are due again a minute later, turned ones an hour later.
    const half = new Date(clock.now().getTime() + 1_800_000)
    const isDone = async () => {
      const next = await store.nextDue(rotationQueue(MOUNT))
      return next !== undefined && next > half && (await store.nextDue(turningQueue(MOUNT))) === undefined
    }
    while (!(await isDone())) {
      stop.signal.throwIfAborted()
      if (performance.now() - startedMs > 150_000) throw new Error('not all roles are rotated in time')
      await clock.sleep(5)
    }
    const rotationsPerSecond = (ROLES * 1000) / (performance.now() - startedMs)
    stop.abort()
    await running

    const ratio = (rotationsPerSecond / modifiesPerSecond).toFixed(2)
    console.log(
      `${rotationsPerSecond.toFixed(0)} rotations/s, ${modifiesPerSecond.toFixed(0)} modifies/s of the directory alone, ratio ${ratio}`,
    )
    let served = 0
    await rate(uids, async (uid) => {
      const password = (await store.read(testAccountKind, `${MOUNT}/${uid}`))?.value.account.confirmed?.password
      if (password && (await door.verify(settings, { name: dnOf(uid), password }, never))) served += 1
    })
    expect(served).toBe(ROLES)
  } finally {
    stop.abort()
    await slapd.stop()
    await rm(directory, { recursive: true, force: true })
  }
}, 300_000)

/** Does the work for all, so many at once; returns how many a second. */
async function rate(all: readonly string[], work: (one: string) => Promise<void>): Promise<number> {
  const startedMs = performance.now()
  const left = [...all]
  const lane = async () => {
    for (let one = left.pop(); one !== undefined; one = left.pop()) await work(one)
  }
  await Promise.all(Array.from({ length: PARALLEL }, lane))
  return (all.length * 1000) / (performance.now() - startedMs)
}
