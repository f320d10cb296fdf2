import type { Clock } from '../../../lib/clock.ts'
import { invalid } from '../../../lib/errors.ts'
import type { Random } from '../../../lib/random.ts'
import { type AccountState, accountDue } from '../../account/account.ts'
import type { AccountHost, LoadedAccount } from '../../account/host.ts'
import type { Mount } from '../../backend.ts'
import { generatePassword } from '../../password/generate.ts'
import { retryConflicts } from '../../storage/retry.ts'
import { type Change, publish, put, remove, type Store, type Stored } from '../../storage/store.ts'
import { NO_SUCH_ACCOUNT, requireEntry } from '../../tenancy/enforce.ts'
import { readTenancy } from '../../tenancy/table.ts'
import { requireConfig } from './config.ts'
import { accountTarget, bindIdentity, directorySettings } from './directory-access.ts'
import {
  claimIdentities,
  entryIdentities,
  givenIdentities,
  type Holder,
  isBindAccount,
  releaseIdentities,
} from './managed-account.ts'
import { configKind, type EngineConfig, type StaticRoleRecord, staticRoleKind, staticRoleNameKind } from './records.ts'
import { countTenantRole, withTenantRetry } from './tenant-count.ts'

/**
 * A static role as the account state machine sees it. Every commit here holds all that belongs together: the role, its due time, its name
 * in lists, the identities of its account, its tenant's count, its events.
 */
export interface StaticRoleHostDeps {
  readonly store: Store
  readonly clock: Clock
  readonly random: Random
}

/** `answering`: the one who asked for the creation is still waiting for its outcome. */
export function staticRoleHost(
  { store, clock, random }: StaticRoleHostDeps,
  mount: Pick<Mount, 'id' | 'path'>,
  name: string,
  { answering = false }: { answering?: boolean } = {},
): AccountHost {
  const key = `${mount.id}/${name}`
  const records = new WeakMap<LoadedAccount, Loaded>()
  /** The identities that `permit` wrote down, until the role's record says so too. */
  const claimed = new Set<string>()

  const loadedOf = (loaded: LoadedAccount): Loaded => {
    const found = records.get(loaded)
    if (!found) throw new Error('an account is saved by a host that did not load it')
    return found
  }

  const describe = (record: StaticRoleRecord, version: number, stored: Stored<EngineConfig>): LoadedAccount => {
    const { owner, principal } = record
    const config = stored.value
    const loaded: LoadedAccount = {
      account: record.account,
      version,
      creating: record.creating,
      settings: directorySettings(config),
      identity: bindIdentity(config),
      schema: config.schema,
      credentialType: config.credentialType ?? 'password',
      target: accountTarget(config, record),
      async permit(entryDn) {
        const identities = entryIdentities(config, entryDn)
        if (isBindAccount(config, identities))
          throw principal === undefined ? ownAccount() : invalid(NO_SUCH_ACCOUNT, { reason: 'not-permitted' })
        if (principal !== undefined)
          requireEntry(await readTenancy(store, mount.id), { principal, kind: 'StaticRole' }, entryDn)
        const missing = identities.filter((identity) => !record.accounts.includes(identity) && !claimed.has(identity))
        if (missing.length === 0) return
        await claim(store, mount.id, missing, { role: name, id: record.id }, clock.now())
        for (const identity of missing) claimed.add(identity)
      },
      generate: () => generatePassword({ length: config.length ?? 0, policy: config.passwordPolicy ?? '' }, random),
      nextRotation: (from) => nextRotation(from, record.rotationPeriodMs, random),
      subject: { mount: mount.path, path: `static-role/${name}`, ...(owner !== undefined && { owner }) },
    }
    records.set(loaded, { record, config: stored })
    return loaded
  }

  return {
    lockKey: key,
    mountId: mount.id,
    async load() {
      const stored = await store.read(staticRoleKind, key)
      if (!stored) return undefined
      return describe(stored.value, stored.version, await requireConfig(store, mount.id))
    },
    async isUnchanged(loaded) {
      const config = await store.readUnless(configKind, mount.id, loadedOf(loaded).config.version)
      return config === 'unchanged' && (await store.readUnless(staticRoleKind, key, loaded.version)) === 'unchanged'
    },
    async save(loaded, { account, dueAt, promoted, events }) {
      const { record, config } = loadedOf(loaded)
      const isCreated = record.creating && promoted !== undefined
      const isWhereItWas = claimed.size === 0 && account.dn === record.account.dn
      const accounts = isWhereItWas ? record.accounts : heldIdentities(record, config.value, account, claimed)
      const next: StaticRoleRecord = {
        ...record,
        account,
        accounts,
        creating: record.creating && !isCreated,
        ...(isCreated && !answering && { recovered: true }),
        nextRotation: promoted ? dueAt : record.nextRotation,
      }
      const versions = await store.commit([
        put(staticRoleKind, key, next, { expected: loaded.version, due: accountDue(mount.id, account, dueAt) }),
        ...releaseIdentities(
          mount.id,
          record.accounts.filter((identity) => !accounts.includes(identity)),
        ),
        ...(isCreated ? announce(mount.id, name, loaded.subject) : []),
        ...events.map(publish),
      ])
      return describe(next, versions.get(key) ?? 0, config)
    },
    async discard(loaded) {
      const { record } = loadedOf(loaded)
      await withTenantRetry(async () => {
        const released = releaseIdentities(mount.id, record.accounts)
        await store.commit(await removal(store, mount.id, name, { record, version: loaded.version, released }))
      })
    },
  }
}

interface Loaded {
  readonly record: StaticRoleRecord
  readonly config: Stored<EngineConfig>
}

/** The refusal of the mount's own account, for callers who are no tenants. */
export function ownAccount() {
  return invalid('the account that the mount itself binds as cannot be managed by a role')
}

/** Writes down that the entry is this role's. Throws `invalid` when it is another's. */
async function claim(store: Store, mountId: string, identities: string[], holder: Holder, now: Date) {
  await retryConflicts(async () => {
    const changes = await claimIdentities(store, mountId, identities, holder, now)
    if (changes.length > 0) await store.commit(changes)
  })
}

/** As asked for, and where the entry is now; where it was before is free again. */
function heldIdentities(
  record: StaticRoleRecord,
  config: EngineConfig,
  account: AccountState,
  claimed: ReadonlySet<string>,
): string[] {
  const found = account.dn === undefined ? [] : entryIdentities(config, account.dn)
  const isHeld = (identity: string) => claimed.has(identity) || record.accounts.includes(identity)
  // What the configuration calls a name may have changed since: what is held stays held.
  const asked = record.accounts.filter((identity) => identity.startsWith('name:'))
  return [...new Set([...asked, ...[...givenIdentities(config, record), ...found].filter(isHeld)])]
}

/** From its first acknowledged moment a role stands in lists and in the feed. */
export function announce(mountId: string, name: string, subject: LoadedAccount['subject']): Change[] {
  return [
    put(staticRoleNameKind, `${mountId}/${name}`, {}, { expected: 'any' }),
    publish({ ...subject, type: 'static-role-create' }),
  ]
}

/** All that goes with a role, and what gives its account back. The caller adds the event. */
export async function removal(
  store: Store,
  mountId: string,
  name: string,
  { record, version, released }: { record: StaticRoleRecord; version: number; released: readonly Change[] },
): Promise<Change[]> {
  return [
    remove(staticRoleKind, `${mountId}/${name}`, { expected: version }),
    remove(staticRoleNameKind, `${mountId}/${name}`, { expected: 'any' }),
    ...released,
    ...(await countTenantRole(store, mountId, record.principal, -1)),
  ]
}

const JITTER_LIMIT_MS = 5_000

/** When a rotation at `from` is followed by the next: after the period, or a little earlier, so that roles made together part. */
export function nextRotation(from: Date, periodMs: number, random: Random): Date {
  const jitterMs = random.integer(Math.floor(Math.min(JITTER_LIMIT_MS, periodMs / 100)) + 1)
  return new Date(from.getTime() + periodMs - jitterMs)
}
