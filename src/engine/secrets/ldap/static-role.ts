import { unsupported } from '../../../lib/errors.ts'
import type { Values } from '../../../schema/answer.ts'
import { type StaticRole, StaticRoleBody } from '../../../schema/static-role.ts'
import { isTurning } from '../../account/account.ts'
import { type Call, type Reply, type Route, route } from '../../backend.ts'
import { VersionConflict } from '../../storage/driver.ts'
import { publish, type Store, type Stored } from '../../storage/store.ts'
import { releaseAccount } from './managed-account.ts'
import { decideOwner } from './ownership.ts'
import { type StaticRoleRecord, staticRoleKind, staticRoleNameKind } from './records.ts'
import { foldRoleName, listedFolder, requireRoleName } from './role-name.ts'
import { createStaticRole, type StaticRoleDeps } from './static-role-create.ts'
import { removal, staticRoleHost } from './static-role-host.ts'
import { updateStaticRole } from './static-role-update.ts'

/**
 * `static-role/:name`: a directory account whose password turns by itself. Creation is acknowledged only after the first
 * password is confirmed; until then the role is invisible.
 */
export function staticRoleRoute(deps: StaticRoleDeps): Route {
  const { store } = deps
  return route<StaticRole>({
    pattern: 'static-role/:name*',
    sameName: foldRoleName,
    body: StaticRoleBody,
    exists: async (call) => (await readRole(store, call.mount.id, nameOf(call))) !== undefined,
    async read(call) {
      // Without a name it lists.
      if (nameOf(call) === '') return list(store, call)
      const stored = await readRole(store, call.mount.id, requireRoleName(nameOf(call)))
      return stored && { shape: 'flat', data: roleValues(stored.value) }
    },
    list: (call) => list(store, call),
    async write(call) {
      if (nameOf(call) === '') throw unsupported()
      const name = requireRoleName(nameOf(call))
      for (;;) {
        const stored = await store.read(staticRoleKind, `${call.mount.id}/${name}`)
        try {
          await (stored && !stored.value.creating
            ? updateStaticRole(deps, call, name, stored)
            : createStaticRole(deps, call, name, stored))
          return undefined
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
        }
      }
    },
    async delete(call) {
      if (nameOf(call) === '') throw unsupported()
      await deleteRole(deps, call, requireRoleName(nameOf(call)))
      return undefined
    },
  })
}

function nameOf({ params }: Pick<Call, 'params'>): string {
  return params['name'] ?? ''
}

/** A role that may be seen; `undefined` also while it is being created. */
export async function readRole(
  store: Store,
  mountId: string,
  name: string,
): Promise<Stored<StaticRoleRecord> | undefined> {
  const stored = await store.read(staticRoleKind, `${mountId}/${foldRoleName(name)}`)
  return stored?.value.creating ? undefined : stored
}

async function list(store: Store, call: Pick<Call, 'params' | 'mount'>): Promise<Reply> {
  const folder = listedFolder(nameOf(call))
  return { shape: 'keys', keys: await store.children(staticRoleNameKind, `${call.mount.id}/${folder}`) }
}

function roleValues(role: StaticRoleRecord): Values {
  const { account, owner } = role
  return {
    dn: role.dn ?? account.dn ?? '',
    username: role.username,
    rotation_period: role.rotationPeriodMs / 1000,
    ...(account.confirmed && {
      last_service_rotation: account.confirmed.since,
      last_vault_rotation: account.confirmed.since,
    }),
    credential_version: account.credentialVersion,
    next_rotation: role.nextRotation,
    ...(account.dn !== undefined && { resolved_dn: account.dn }),
    ...(owner !== undefined && { owner }),
    ...(account.failure && {
      last_error: {
        class: account.failure.class,
        message: account.failure.message,
        count: account.failure.count,
        since: account.failure.since,
        retry_at: account.failure.retryAt,
      },
    }),
  }
}

/** How long a deletion waits for a password in the air, so that the directory changes no more once it is acknowledged. */
const LONGEST_WAIT_MS = 5_000

async function deleteRole(deps: StaticRoleDeps, { mount, caller, signal }: Call<StaticRole>, name: string) {
  const { store } = deps
  const key = `${mount.id}/${name}`
  for (let isResolved = false; ; ) {
    const stored = await store.read(staticRoleKind, key)
    if (!stored) return
    const { owner, creating, account } = stored.value
    decideOwner({ what: 'static role', exists: true, owner, caller })
    if (isTurning(account) && !isResolved) {
      const isOver = AbortSignal.any([signal, AbortSignal.timeout(LONGEST_WAIT_MS)])
      await deps.turner.turn(staticRoleHost(deps, mount, name), 'recover', isOver).catch(() => undefined)
      signal.throwIfAborted()
      isResolved = true
      continue
    }
    // A password that may still be on its way goes with the role: the directory keeps whichever it has once it must have arrived.
    const released = releaseAccount(mount.id, key, stored.value, deps.clock.now())
    const subject = { mount: mount.path, path: `static-role/${name}`, ...(owner !== undefined && { owner }) }
    try {
      await store.commit([
        ...(await removal(store, mount.id, name, { record: stored.value, version: stored.version, released })),
        ...(creating ? [] : [publish({ ...subject, type: 'static-role-delete' })]),
      ])
      return
    } catch (error) {
      if (!(error instanceof VersionConflict)) throw error
    }
  }
}
