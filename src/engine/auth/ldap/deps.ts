import type { Clock } from '../../../lib/clock.ts'
import type { Logger } from '../../../lib/log.ts'
import type { DirectoryGuard } from '../../account/guard.ts'
import type { DirectoryDoor } from '../../directory/directory.ts'
import type { Barrier } from '../../seal/barrier.ts'
import type { Store } from '../../storage/store.ts'

/** What the LDAP login method is made from. */
export interface LdapAuthDeps {
  readonly store: Store
  readonly barrier: Pick<Barrier, 'hash'>
  readonly door: DirectoryDoor
  readonly guard: DirectoryGuard
  readonly clock: Clock
  readonly log: Logger
}
