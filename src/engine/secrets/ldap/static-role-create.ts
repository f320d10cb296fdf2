import type { Clock } from '../../../lib/clock.ts'
import { invalid, unavailable } from '../../../lib/errors.ts'
import type { Random } from '../../../lib/random.ts'
import type { StaticRole } from '../../../schema/static-role.ts'
import { accountDue, NEW_ACCOUNT } from '../../account/account.ts'
import type { DirectoryGuard } from '../../account/guard.ts'
import type { AccountTurner } from '../../account/turn.ts'
import type { Call } from '../../backend.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import { put, type Store, type Stored } from '../../storage/store.ts'
import { NO_SUCH_ACCOUNT, requireName, requireStaticRole } from '../../tenancy/enforce.ts'
import { readTenancy } from '../../tenancy/table.ts'
import { requireConfig } from './config.ts'
import { findAccount } from './find-account.ts'
import { claimIdentities, entryIdentities, givenIdentities, isBindAccount } from './managed-account.ts'
import { decideOwner } from './ownership.ts'
import { type EngineConfig, type StaticRoleRecord, staticRoleKind } from './records.ts'
import { announce, nextRotation, ownAccount, staticRoleHost } from './static-role-host.ts'
import { countTenantRole, withTenantRetry } from './tenant-count.ts'

export interface StaticRoleDeps {
  readonly store: Store
  readonly door: DirectoryDoor
  readonly guard: DirectoryGuard
  readonly turner: AccountTurner
  readonly clock: Clock
  readonly random: Random
  /** Something may be due earlier than the rotation worker knows. */
  readonly wake: () => void
}

/** Whoever creates a role and dies before its first password is in the air leaves it to the worker after this. */
const ABANDONED_MS = 2_000

/**
 * Creates a static role: reserve the name and the account (record marked `creating`) → turn the password → acknowledge, the last two by
 * the state machine. What the directory refuses, or could not be told, leaves nothing behind. Where the outcome is unknown, the same request may be
 * sent again: it goes on with what the first left. Throws `VersionConflict` when somebody else was faster: look again then.
 */
export async function createStaticRole(
  deps: StaticRoleDeps,
  call: Call<StaticRole>,
  name: string,
  unfinished: Stored<StaticRoleRecord> | undefined,
): Promise<void> {
  const { store, clock, random } = deps
  const { mount, fields, caller } = call
  const { username, rotationPeriod } = fields
  if (!username?.trim()) throw invalid('username is required')
  if (rotationPeriod === undefined) throw invalid('rotation_period is required')
  const stored = await requireConfig(store, mount.id)
  const config = stored.value
  const asked = {
    username,
    ...(fields.dn && { dn: fields.dn }),
    rotationPeriodMs: rotationPeriod,
    skippedImport: fields.skipImportRotation ?? config.skipStaticRoleImportRotation ?? false,
  }
  const owner = decideOwner({
    what: 'static role',
    exists: false,
    owner: unfinished?.value.owner,
    caller,
    adopt: fields.adopt,
    disown: fields.disown,
  })
  if (unfinished) {
    if (!isSameDefinition(unfinished.value, asked) || unfinished.value.principal !== caller.principal)
      throw unavailable('another creation of this role has not ended yet; nothing was changed')
    return turn(deps, call, name)
  }
  const identities = givenIdentities(config, asked)
  const { entryDn, entry = [], requireCount } = await admit(deps, call, { name, config: stored, identities, ...asked })
  const { principal } = caller
  // Beside a DN a tenant's name for the account proves nothing: kept, it would keep the account of that name from its own tenant.
  const held = principal === undefined || asked.dn === undefined ? identities : entryIdentities(config, asked.dn)
  const now = clock.now()
  const record: StaticRoleRecord = {
    ...asked,
    id: random.uuid(),
    creating: !asked.skippedImport,
    ...(owner !== undefined && { owner }),
    ...(principal !== undefined && { principal }),
    accounts: [...new Set([...held, ...entry])],
    nextRotation: nextRotation(now, asked.rotationPeriodMs, random),
    account: { ...NEW_ACCOUNT, ...(entryDn !== undefined && { dn: entryDn }) },
  }
  const dueAt = record.creating ? new Date(now.getTime() + ABANDONED_MS) : record.nextRotation
  const subject = { mount: mount.path, path: `static-role/${name}`, ...(owner !== undefined && { owner }) }
  await withTenantRetry(async () => {
    await store.commit([
      ...(await claimIdentities(store, mount.id, record.accounts, { role: name, id: record.id }, now)),
      ...(await countTenantRole(store, mount.id, principal, 1, requireCount)),
      put(staticRoleKind, `${mount.id}/${name}`, record, {
        expected: 0,
        due: accountDue(mount.id, record.account, dueAt),
      }),
      ...(record.creating ? [] : announce(mount.id, name, subject)),
    ])
  })
  if (record.creating) return turn(deps, call, name)
  deps.wake()
}

async function turn(
  { store, clock, random, turner, wake }: StaticRoleDeps,
  { mount, signal }: Call<StaticRole>,
  name: string,
) {
  await turner.turn(staticRoleHost({ store, clock, random }, mount, name, { answering: true }), 'create', signal)
  wake()
}

export type Definition = Pick<StaticRoleRecord, 'username' | 'dn' | 'rotationPeriodMs' | 'skippedImport'>

export function isSameDefinition(a: Definition, b: Definition): boolean {
  return (
    a.username === b.username &&
    a.dn === b.dn &&
    a.rotationPeriodMs === b.rotationPeriodMs &&
    a.skippedImport === b.skippedImport
  )
}

export type Admission = Pick<Definition, 'username' | 'dn' | 'rotationPeriodMs'> & {
  readonly name: string
  readonly config: Stored<EngineConfig>
  readonly identities: readonly string[]
}

export interface Admitted {
  /** Of a tenant's account. */
  readonly entryDn?: string
  /** The identities of that entry. */
  readonly entry?: readonly string[]
  /** Throws when the tenant has so many other roles that it may not have this one. */
  readonly requireCount?: (otherRoles: number) => void
}

/**
 * Throws `invalid` unless the caller may have this role. A tenant's account is looked up now, also where nothing is rotated; a tenant
 * learns nothing about accounts that are not its own.
 */
export async function admit(
  deps: Pick<StaticRoleDeps, 'store' | 'door' | 'guard'>,
  { mount, caller, signal }: Call<StaticRole>,
  { name, config: stored, identities, rotationPeriodMs, ...account }: Admission,
): Promise<Admitted> {
  const { principal } = caller
  const config = stored.value
  if (principal === undefined) {
    if (isBindAccount(config, identities)) throw ownAccount()
    return {}
  }
  const table = await readTenancy(deps.store, mount.id)
  // What needs no look into the directory is refused without one.
  requireName(table, { principal, kind: 'StaticRole' }, name)
  const entryDn = await findAccount(deps, stored, account, signal)
  const entry = entryDn === undefined ? [] : entryIdentities(config, entryDn)
  if (entryDn === undefined || isBindAccount(config, [...identities, ...entry]))
    throw invalid(NO_SUCH_ACCOUNT, { reason: 'not-permitted' })
  const requireCount = (otherRoles: number) =>
    requireStaticRole(table, principal, { name, rotationPeriodMs, entryDn, otherRoles })
  requireCount(0)
  return { entryDn, entry, requireCount }
}
