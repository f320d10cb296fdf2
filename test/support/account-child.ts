/**
 * A server with one SQLite store and the accounts in it, to be killed: `node account-child.ts DIR URL UID ACT STEP`. At its start it resolves
 * what an earlier one left open, then tells `served` (the stored password binds), `lost` or `empty`. Then, by ACT: `rotate` and `create` turn
 * once, `loop` turns until killed, `check` ends. It kills itself when a turn reaches STEP (`never` for none).
 */
import { join } from 'node:path'
import { isTurning } from '../../src/engine/account/account.ts'
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
import { dnOf, MOUNT, putAccount, settingsFor, testAccountKind, testHost } from './account-host.ts'

const [directory = '', url = '', uid = '', act = '', killAt = ''] = process.argv.slice(2)
const tell = (line: string) => process.stdout.write(`${line}\n`)
const never = new AbortController().signal
const log = createLogger({ level: 'silent' })

const driver = openDriver(directory)
const seal = openFileSeal(join(directory, 'seal-key'), { createIfMissing: true })
const store = await openStore({ driver, seal, clock })
const settings = settingsFor([url])
const door = createDirectoryDoor({ clock, random })
const guard = createDirectoryGuard({ store, clock, random, log })
const steps = {
  reached(step: string) {
    if (step !== killAt) return
    process.kill(process.pid, 'SIGKILL')
    // The signal takes effect at once, but nothing more may happen in any case.
    return new Promise<void>(() => undefined)
  },
}
const turner = createAccountTurner({ door, guard, clock, random, log, isExclusive: true, steps })
const host = testHost(uid, { store, settings })
const hosts = {
  recordKind: testAccountKind,
  mounts: async () => [{ id: MOUNT }],
  hostFor: () => host,
}
const worker = createRotationWorker({ store, turner, guard, clock, log, isExclusive: true, hosts })
void runWorker(worker, { clock, signal: never, onError: (error) => tell(`error ${error}`) })

async function settled() {
  const end = clock.monotonicMs() + 5_000
  for (;;) {
    const account = (await store.read(testAccountKind, `${MOUNT}/${uid}`))?.value
    if (!account || (!isTurning(account.account) && account.account.confirmed)) return account?.account
    if (clock.monotonicMs() > end) return account.account
    await clock.sleep(2)
  }
}

const account = await settled()
if (!account) tell('empty')
else {
  const password = account.confirmed?.password
  const isServed =
    !isTurning(account) && password && (await door.verify(settings, { name: dnOf(uid), password }, never))
  tell(
    isServed
      ? 'served'
      : `lost: ${isTurning(account) ? 'in the air' : 'does not bind'}, version ${account.credentialVersion}, failure ${account.failure?.message}`,
  )
}
switch (act) {
  case 'rotate':
    await turner.turn(host, 'manual', never)
    break
  case 'create':
    await putAccount(store, uid, { dueAt: clock.now() })
    await turner.turn(host, 'create', never)
    break
  case 'loop':
    for (;;) await turner.turn(host, 'manual', never)
  default:
}
// What was begun ends first.
await turner[Symbol.asyncDispose]()
process.exit(0)
