import { invalid } from '../../../lib/errors.ts'
import type { StaticRole } from '../../../schema/static-role.ts'
import { accountDue } from '../../account/account.ts'
import type { Call, Caller } from '../../backend.ts'
import { publish, put, type Stored } from '../../storage/store.ts'
import { requireStaticRole } from '../../tenancy/enforce.ts'
import { readTenancy } from '../../tenancy/table.ts'
import { requireConfig } from './config.ts'
import { claimIdentities, givenIdentities } from './managed-account.ts'
import { decideOwner } from './ownership.ts'
import { type StaticRoleRecord, staticRoleKind } from './records.ts'
import { type Admitted, admit, isSameDefinition, type StaticRoleDeps } from './static-role-create.ts'
import { nextRotation } from './static-role-host.ts'
import { countTenantRole } from './tenant-count.ts'

/**
 * Changes what may change of a static role, without rotating: its period, and who owns it. Throws `VersionConflict` when
 * somebody else changed the role meanwhile: look again then.
 */
export async function updateStaticRole(
  deps: StaticRoleDeps,
  call: Call<StaticRole>,
  name: string,
  stored: Stored<StaticRoleRecord>,
): Promise<void> {
  const { store, clock, random } = deps
  const { mount, fields, caller } = call
  const role = stored.value
  const owner = decideOwner({
    what: 'static role',
    exists: true,
    owner: role.owner,
    caller,
    adopt: fields.adopt,
    disown: fields.disown,
  })
  const rotationPeriodMs = fields.rotationPeriod ?? role.rotationPeriodMs
  requireUnchanged(role, fields, rotationPeriodMs)
  const isAdopted = owner !== undefined && role.owner === undefined
  const {
    entryDn,
    entry = [],
    requireCount,
  } = await admitUpdate(deps, call, name, { ...role, rotationPeriodMs }, isAdopted)
  const principal = principalAfter(role, caller, isAdopted, owner)
  const { owner: _, principal: __, recovered: ___, ...kept } = role
  const since = role.account.confirmed?.since ?? clock.now()
  const isPeriodNew = rotationPeriodMs !== role.rotationPeriodMs
  const next: StaticRoleRecord = {
    ...kept,
    ...(owner !== undefined && { owner }),
    ...(principal !== undefined && { principal }),
    rotationPeriodMs,
    nextRotation: isPeriodNew ? nextRotation(since, rotationPeriodMs, random) : role.nextRotation,
    accounts: [...new Set([...role.accounts, ...entry])],
    account: entryDn === undefined ? role.account : { ...role.account, dn: entryDn },
  }
  // What fails, or has a password in the air, is looked at when its state says so, whatever the period.
  const isBusy = role.account.failure !== undefined || role.account.pending !== undefined
  const dueAt = isBusy && stored.due ? stored.due.at : next.nextRotation
  await store.commit([
    ...(await claimIdentities(store, mount.id, entry, { role: name, id: role.id }, clock.now())),
    ...(principal === role.principal
      ? []
      : [
          ...(await countTenantRole(store, mount.id, role.principal, -1)),
          ...(await countTenantRole(store, mount.id, principal, 1, requireCount)),
        ]),
    put(staticRoleKind, stored.key, next, {
      expected: stored.version,
      due: accountDue(mount.id, next.account, dueAt),
    }),
    publish({
      type: 'static-role-update',
      mount: mount.path,
      path: `static-role/${name}`,
      ...(owner !== undefined && { owner }),
    }),
  ])
  deps.wake()
}

/**
 * For whom a role is: who adopts it takes it with the tenant's bounds; who changes a role of nobody without being a tenant takes it out of
 * the bounds of the tenant that left it.
 */
function principalAfter(
  role: StaticRoleRecord,
  caller: Caller,
  isAdopted: boolean,
  owner: string | undefined,
): string | undefined {
  if (isAdopted) return caller.principal
  const isFreed = owner === undefined && !caller.isController
  return isFreed ? undefined : role.principal
}

function requireUnchanged(role: StaticRoleRecord, fields: Partial<StaticRole>, rotationPeriodMs: number): void {
  if (fields.username !== undefined && fields.username !== role.username)
    throw invalid('username cannot be changed after creation')
  if (fields.dn !== undefined && fields.dn !== (role.dn ?? '')) throw invalid('dn cannot be changed after creation')
  if (fields.skipImportRotation === undefined) return
  // Whoever was told "outcome unknown" at creation asks again with the very same request.
  const asked = { ...role, rotationPeriodMs, skippedImport: fields.skipImportRotation }
  if (!role.recovered || !isSameDefinition(role, asked))
    throw invalid('skip_import_rotation has no effect on updates: it can only be given at creation')
}

/** A tenant's change must still be within its bounds; only taking a role over asks the directory. */
async function admitUpdate(
  deps: StaticRoleDeps,
  call: Call<StaticRole>,
  name: string,
  role: StaticRoleRecord,
  isAdopted: boolean,
): Promise<Admitted> {
  const { mount, caller } = call
  const { principal } = caller
  if (principal === undefined || call.fields.disown) return {}
  if (isAdopted) {
    const config = await requireConfig(deps.store, mount.id)
    return admit(deps, call, { ...role, name, config, identities: givenIdentities(config.value, role) })
  }
  requireStaticRole(await readTenancy(deps.store, mount.id), principal, {
    name,
    rotationPeriodMs: role.rotationPeriodMs,
    entryDn: role.account.dn ?? role.dn,
    // It has the role already: a limit lowered since does not take it away.
    otherRoles: 0,
  })
  return {}
}
