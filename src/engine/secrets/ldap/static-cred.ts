import type { Clock } from '../../../lib/clock.ts'
import { invalid } from '../../../lib/errors.ts'
import type { Values } from '../../../schema/answer.ts'
import { type AccountState, isTurning } from '../../account/account.ts'
import { type Call, type Route, route } from '../../backend.ts'
import type { Store } from '../../storage/store.ts'
import { isForCaller } from './ownership.ts'
import type { StaticRoleRecord } from './records.ts'
import { foldRoleName } from './role-name.ts'
import { readRole } from './static-role.ts'

/**
 * `static-cred/:name`: the password that is known to be right. Reading changes nothing, costs one read of the store and
 * works while the directory is down. Only while a password is in the air, whose outcome may be known in a moment, does it wait a
 * little; and only after a restore from a backup is a password proven by a bind before it is served.
 */
export function staticCredRoute(deps: {
  readonly store: Store
  readonly clock: Clock
  readonly restored: RestoredAccounts
}): Route {
  const { store, clock, restored } = deps

  async function readSettled({ mount, params, caller, signal }: Call): Promise<StaticRoleRecord> {
    const name = foldRoleName(params['name'] ?? '')
    for (let waitedMs = 0; ; waitedMs += POLL_MS) {
      const stored = await readRole(store, mount.id, name)
      if (!stored || !isForCaller(stored.value, caller)) throw invalid('unknown role')
      const { account } = stored.value
      if (isTurning(account) && account.failure === undefined && waitedMs < LONGEST_WAIT_MS)
        await clock.sleep(POLL_MS, signal)
      else if (await restored.isProven(account)) return stored.value
      else await restored.prove(mount, name, signal)
    }
  }

  return route({
    pattern: 'static-cred/:name+',
    sameName: foldRoleName,
    async read(call) {
      const role = await readSettled(call)
      const { account, nextRotation } = role
      const warning = warningFor(account)
      if (warning !== undefined) call.warn(warning)
      const rotated = account.confirmed?.since ?? NEVER
      // A rotation that fails, or has not ended, is due.
      const isDue = account.confirmed !== undefined && warning !== undefined
      const ttl = Math.round((nextRotation.getTime() - clock.now().getTime()) / 1000)
      const data: Values = {
        dn: role.dn ?? account.dn ?? '',
        username: role.username,
        password: account.confirmed?.password ?? '',
        last_password: account.previous ?? '',
        rotation_period: role.rotationPeriodMs / 1000,
        ttl: isDue ? 0 : Math.max(ttl, 0),
        last_service_rotation: rotated,
        last_vault_rotation: rotated,
        credential_version: account.credentialVersion,
      }
      return { shape: 'flat', data }
    },
  })
}

/** What is to be done about passwords after a restore. */
export interface RestoredAccounts {
  /** Whether the confirmed password may be served. */
  isProven(account: AccountState): Promise<boolean>
  /** Resolves when it may; throws `unavailable` while that cannot be told. */
  prove(mount: Call['mount'], name: string, signal: AbortSignal): Promise<void>
}

const NEVER = '0001-01-01T00:00:00Z'
const POLL_MS = 50
const LONGEST_WAIT_MS = 2_000

function warningFor(account: AccountState): string | undefined {
  const last = account.confirmed ? 'this is the last password known to be right' : 'no password is known yet'
  if (account.failure) return `rotation fails (${account.failure.class}) and is tried again: ${last}`
  if (isTurning(account)) return `a rotation has not ended yet: ${last}`
  return undefined
}
