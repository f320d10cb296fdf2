import type { Clock } from '../../../lib/clock.ts'
import type { Logger } from '../../../lib/log.ts'
import type { Random } from '../../../lib/random.ts'
import { accountDue, isTurning } from '../../account/account.ts'
import { type DirectoryGuard, openedGuard } from '../../account/guard.ts'
import { isProven, proveRestored } from '../../account/restored.ts'
import { createRestoredWorker } from '../../account/restored-worker.ts'
import { createRotationWorker, type RotationHosts } from '../../account/rotation-worker.ts'
import type { AccountTurner } from '../../account/turn.ts'
import type { Backend, Mount } from '../../backend.ts'
import { isSameConnection } from '../../connection/connection.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { ROOT } from '../../directory/door.ts'
import { VersionConflict } from '../../storage/driver.ts'
import { type RestoreMark, readRestoreMark } from '../../storage/restore-mark.ts'
import { put, remove, type Store } from '../../storage/store.ts'
import { forgetTenancy } from '../../tenancy/table.ts'
import { configRoute, requireConfig } from './config.ts'
import { directorySettings, mountConnection } from './directory-access.ts'
import { releaseAccount } from './managed-account.ts'
import {
  accountKind,
  configKind,
  type EngineConfig,
  type StaticRoleRecord,
  staticRoleKind,
  staticRoleNameKind,
  tenantKind,
} from './records.ts'
import { rotateRoleRoute } from './rotate-role.ts'
import { type RestoredAccounts, staticCredRoute } from './static-cred.ts'
import { staticRoleRoute } from './static-role.ts'
import { staticRoleHost } from './static-role-host.ts'

/**
 * The LDAP secrets engine: directory accounts whose passwords turn. One file per API path; `records.ts` says what is
 * kept, `static-role-host.ts` how a role is the account that `engine/account/` turns.
 *
 * Invariants: a role, its place in lists, its hold on its account and its event change in one commit; one account has one role; nobody
 * but its owner writes an owned object; for a tenant, the table is asked at acceptance and before every write to the directory.
 * Reads need no directory. Leaves to others: how a password turns safely (`account/`), how a directory is reached (`directory/`).
 */
export function createLdapSecretsBackend(deps: {
  readonly store: Store
  readonly door: DirectoryDoor
  readonly turner: AccountTurner
  readonly guard: DirectoryGuard
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** All mounts of this type. */
  readonly mounts: () => Promise<readonly Mount[]>
  /** No other process can have the store open. */
  readonly isExclusive?: boolean
}): Backend {
  const { store, door, guard, turner, clock, random, log } = deps
  // A record's key begins with its mount's id; the worker asks for all mounts right before it asks for a host of one.
  let paths = new Map<string, string>()
  const hosts: RotationHosts<StaticRoleRecord> = {
    recordKind: staticRoleKind,
    async mounts() {
      const mounts = await deps.mounts()
      paths = new Map(mounts.map(({ id, path }) => [id, path]))
      return mounts
    },
    hostFor(mountId, key) {
      const mount = { id: mountId, path: paths.get(mountId) ?? '' }
      return staticRoleHost({ store, clock, random }, mount, key.slice(mountId.length + 1))
    },
    async probe(mountId, signal) {
      await guard.run(mountId, async (admission) => {
        const { settings, identity } = mountConnection((await requireConfig(store, mountId)).value)
        await door.withSession(settings, identity, signal, (session) => session.search(ROOT), { admission })
      })
    },
  }
  const isExclusive = deps.isExclusive ?? false
  const worker = createRotationWorker({ store, turner, guard, clock, log, isExclusive, hosts })
  const restoredWorker = createRestoredWorker({ store, door, turner, guard, clock, log, hosts })
  const wake = () => worker.poke()

  /** A new configuration is a new chance: what failed is tried at once, and where it connects in another way that is made anew. */
  const changed = async (mountId: string, { before, after }: Change): Promise<void> => {
    if (!before || !after || !isSameConnection(mountConnection(before), mountConnection(after))) {
      if (before) door.forget(directorySettings(before))
      await guard.reset(mountId)
    }
    await retryFailing(store, clock, mountId)
    wake()
  }

  // A store is restored only while no server runs on it.
  let mark: Promise<RestoreMark | undefined> | undefined
  const readMark = (): Promise<RestoreMark | undefined> => {
    mark ??= readRestoreMark(store).catch((error: unknown) => {
      mark = undefined
      throw error
    })
    return mark
  }
  const restored: RestoredAccounts = {
    isProven: async (account) => isProven(account, await readMark()),
    async prove(mount, name, signal) {
      const host = staticRoleHost({ store, clock, random }, mount, name)
      await proveRestored({ door, guard, turner, clock, log }, host, await readMark(), signal)
    },
  }

  return {
    type: 'ldap',
    routes: [
      configRoute({ store, door, guard, changed }),
      staticRoleRoute({ store, door, guard, turner, clock, random, wake }),
      staticCredRoute({ store, clock, restored }),
      rotateRoleRoute({ store, clock, random, turner, wake }),
    ],
    workers: [worker, restoredWorker],
    isConfigured: async ({ id }) => (await store.read(configKind, id)) !== undefined,
    async unmount({ id }) {
      const config = await store.readUndamaged(configKind, id)
      await store.commit([remove(configKind, id, { expected: 'any' }), forgetTenancy(id)])
      await turner.settled(`${id}/`, LONGEST_WAIT_MS)
      await forgetRoles(store, id, clock.now())
      await forgetAll(store, staticRoleNameKind, id)
      await forgetAll(store, accountKind, id)
      await forgetAll(store, tenantKind, id)
      if (config) door.forget(directorySettings(config.value))
      await store.commit([openedGuard(id)])
    },
  }
}

/** How long a removal waits for rotations under way. */
const LONGEST_WAIT_MS = 5_000

interface Change {
  readonly before?: EngineConfig
  readonly after?: EngineConfig
}

const PAGE = 100

async function forgetAll(store: Store, kind: { readonly prefix: string }, mountId: string): Promise<void> {
  for (;;) {
    const page = await store.keys(kind, `${mountId}/`, { limit: PAGE })
    if (page.length === 0) return
    await store.commit(page.map((key) => remove(kind, key, { expected: 'any' })))
  }
}

/** Each role goes with its hold on its account, which stands beside the directory's address too. */
async function forgetRoles(store: Store, mountId: string, now: Date): Promise<void> {
  for (;;) {
    const keys = await store.keys(staticRoleKind, `${mountId}/`, { limit: PAGE })
    if (keys.length === 0) return
    const roles = await Promise.all(keys.map((key) => store.readUndamaged(staticRoleKind, key)))
    await store.commit([
      ...keys.map((key) => remove(staticRoleKind, key, { expected: 'any' })),
      ...roles.flatMap((role) => (role ? releaseAccount(mountId, role.key, role.value, now) : [])),
    ])
  }
}

/** Makes the roles of a mount due now whose last rotation failed, or whose time passed while there was no configuration. */
async function retryFailing(store: Store, clock: Clock, mountId: string): Promise<void> {
  for (let after: string | undefined; ; ) {
    const options = { limit: PAGE, ...(after !== undefined && { after }) }
    const page = await store.keys(staticRoleKind, `${mountId}/`, options)
    await Promise.all(page.map((key) => retryOne(store, mountId, key, clock.now())))
    after = page.at(-1)
    if (page.length < PAGE) return
  }
}

async function retryOne(store: Store, mountId: string, key: string, now: Date): Promise<void> {
  const stored = await store.readUndamaged(staticRoleKind, key)
  if (!stored) return
  const { value, version, due } = stored
  const isWaiting = value.account.failure !== undefined || (value.nextRotation <= now && !isTurning(value.account))
  if (!isWaiting || !due || due.at <= now) return
  try {
    const isDue = { expected: version, due: accountDue(mountId, value.account, now) }
    await store.commit([put(staticRoleKind, key, value, isDue)])
  } catch (error) {
    // Whoever was faster has just looked at it.
    if (!(error instanceof VersionConflict)) throw error
  }
}
