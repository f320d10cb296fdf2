import type { Clock } from '../../../lib/clock.ts'
import { invalid } from '../../../lib/errors.ts'
import { isTurning } from '../../account/account.ts'
import { type Call, type Route, route } from '../../backend.ts'
import type { Values } from '../../request.ts'
import type { Store } from '../../storage/store.ts'
import type { StaticRoleRecord } from './records.ts'
import { readRole } from './static-role.ts'

/**
 * `static-cred/:name`: the password that is known to be right (CONTRACT 9.4). Reading changes nothing, costs one read of the store and
 * works while the directory is down. Only while a password is in the air, whose outcome may be known in a moment, does it wait a little.
 */
export function staticCredRoute(deps: {
  store: Store
  clock: Clock
  /** Whether the password was proven since the store was last restored from a backup. */
  isProven: (role: StaticRoleRecord) => boolean
}): Route {
  const { store, clock, isProven } = deps
  return route({
    pattern: 'static-cred/:name+',
    async read(call) {
      const role = await settled(call)
      const { account, nextRotation } = role
      const warning = warningFor(role, isProven(role))
      if (warning !== undefined) call.warn(warning)
      const rotated = account.confirmed?.since ?? NEVER
      const isLate = account.failure !== undefined || isTurning(account)
      const ttl = Math.round((nextRotation.getTime() - clock.now().getTime()) / 1000)
      const data: Values = {
        dn: role.dn ?? account.dn ?? '',
        username: role.username,
        password: account.confirmed?.password ?? '',
        last_password: account.previous ?? '',
        rotation_period: role.rotationPeriodMs / 1000,
        ttl: isLate && account.confirmed ? 0 : Math.max(ttl, 0),
        last_service_rotation: rotated,
        last_vault_rotation: rotated,
        credential_version: account.credentialVersion,
      }
      return { shape: 'flat', data }
    },
  })

  async function settled(call: Call): Promise<StaticRoleRecord> {
    const name = call.params['name'] ?? ''
    for (let waitedMs = 0; ; waitedMs += POLL_MS) {
      const stored = await readRole(store, call.mount.id, name)
      if (!stored) throw invalid('unknown role')
      const { account } = stored.value
      const isOpen = isTurning(account) && account.failure === undefined
      if ((!isOpen && isProven(stored.value)) || waitedMs >= LONGEST_WAIT_MS) return stored.value
      await clock.sleep(POLL_MS, call.signal)
    }
  }
}

const NEVER = '0001-01-01T00:00:00Z'
const POLL_MS = 50
const LONGEST_WAIT_MS = 2_000

function warningFor({ account }: StaticRoleRecord, isProven: boolean): string | undefined {
  if (!isProven)
    return 'the store was restored from a backup and this password has not been proven since: it may be outdated'
  if (account.driftedSince)
    return 'somebody else changed the password in the directory: this one does not work; a rotation is tried'
  if (isTurning(account))
    return `a rotation has not ended yet${account.failure ? ` (${account.failure.class})` : ''}: this is the last password known to be right`
  if (account.failure)
    return `rotation fails (${account.failure.class}) and is tried again: this is the last password known to be right`
  return undefined
}
