/**
 * A server with one SQLite store and one static role in it, to be killed: `node account-child.ts DIR URL UID ACT STEP`. It tells
 * `begun`, resolves what an earlier one left open, then tells `served` (the stored password binds), `lost` or `empty`. Then, by ACT: `rotate` and
 * `create` turn once, `loop` turns until killed, `check` ends. It kills itself when a turn reaches STEP (`never` for none).
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { isTurning } from '../../src/engine/account/account.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { type StaticRoleRecord, staticRoleKind } from '../../src/engine/secrets/ldap/records.ts'
import { openSqliteDriver } from '../../src/engine/storage/sqlite.ts'
import { systemClock as clock } from '../../src/lib/clock.ts'
import { systemRandom as random } from '../../src/lib/random.ts'
import { dnOf, MANAGER, settingsFor } from './account-host.ts'
import { MOUNT, startLdapEngine } from './ldap-engine.ts'
import { SUFFIX } from './slapd.ts'

const [directory = '', url = '', uid = '', act = '', killAt = ''] = process.argv.slice(2)
const tell = (line: string) => process.stdout.write(`${line}\n`)
const never = new AbortController().signal

tell('begun')
mkdirSync(directory, { recursive: true })
const driver = openSqliteDriver(join(directory, 'store.db'))
const steps = {
  reached(step: string) {
    if (step !== killAt) return
    process.kill(process.pid, 'SIGKILL')
    // The signal takes effect at once, but nothing more may happen in any case.
    return new Promise<void>(() => undefined)
  },
}
const engine = await startLdapEngine({ driver, steps })
engine.start()

const roleOf = async (): Promise<StaticRoleRecord | undefined> =>
  (await engine.store.read(staticRoleKind, `${MOUNT.id}/role`))?.value

async function settled() {
  const end = clock.monotonicMs() + 5_000
  for (;;) {
    const role = await roleOf()
    if (!role || (!role.creating && !isTurning(role.account) && role.account.confirmed)) return role
    if (clock.monotonicMs() > end) return role
    await clock.sleep(2)
  }
}

const role = await settled()
if (!role) tell('empty')
else {
  const { account, creating } = role
  await using door = createDirectoryDoor({ clock, random })
  const password = account.confirmed?.password
  const isServed =
    !creating &&
    !isTurning(account) &&
    password &&
    (await door.verify(settingsFor([url]), { name: dnOf(uid), password }, never))
  const state = creating ? 'being created' : isTurning(account) ? 'in the air' : 'does not bind'
  tell(
    isServed ? 'served' : `lost: ${state}, version ${account.credentialVersion}, failure ${account.failure?.message}`,
  )
}
switch (act) {
  case 'rotate':
    await engine.write('rotate-role/role')
    break
  case 'create': {
    const bind = { binddn: MANAGER.name, bindpass: MANAGER.password.reveal() }
    await engine.write('config', {
      ...bind,
      url,
      userdn: SUFFIX,
      userattr: 'uid',
      request_timeout: 10,
      connection_timeout: 10,
    })
    await engine.write('static-role/role', { username: uid, rotation_period: '1h' })
    break
  }
  case 'loop':
    for (;;) await engine.write('rotate-role/role')
  default:
}
// What was begun ends first.
await engine[Symbol.asyncDispose]()
process.exit(0)
