import type { Worker } from '../../../lib/worker.ts'
import { openedGuard } from '../../account/guard.ts'
import type { Backend, Mount } from '../../backend.ts'
import type { Store } from '../../storage/store.ts'
import { remove } from '../../storage/store.ts'
import { configRoutes } from './config.ts'
import type { LdapAuthDeps } from './deps.ts'
import { createLockout } from './lockout.ts'
import { loginRoutes, renewLdapLogin } from './login.ts'
import { createLoginTurns } from './login-turns.ts'
import { groupRoutes, userRoutes } from './mappings.ts'
import { configKind, groupKind, LOCKOUT_QUEUE, lockoutKind, userKind } from './records.ts'

/**
 * Login with a directory password: who may bind as herself gets a token with the policies of her name and her groups.
 * A token is renewed by looking the user up again with the identity of the service; only where there is none, her password is kept, sealed with the token.
 */
export function createLdapAuthBackend(deps: LdapAuthDeps): Backend {
  const login = { ...deps, lockout: createLockout(deps), turns: createLoginTurns() }
  return {
    type: 'ldap',
    routes: [...configRoutes(deps), ...groupRoutes(deps), ...userRoutes(deps), ...loginRoutes(login)],
    workers: [lockoutSweeper(deps)],
    renewLogin: (mount, renewal, signal) => renewLdapLogin(deps, mount, renewal, signal),
    isConfigured: async ({ id }) => (await deps.store.read(configKind, id)) !== undefined,
    lockedLogins: (mount) => login.lockout.locked(mount),
    unlockLogin: (mount, name) => login.lockout.unlock(mount, name),
    unmount: (mount) => forget(deps.store, mount),
  }
}

const SWEEP_MS = 60_000

/** Removes the counters of failed logins that no longer count. */
function lockoutSweeper({ store, clock }: LdapAuthDeps): Worker {
  return {
    name: 'ldap-lockout',
    async tick() {
      const now = clock.now()
      const until = new Date(now.getTime() + SWEEP_MS)
      const over = await store.claimKeys(lockoutKind, LOCKOUT_QUEUE, { now, until, limit: 500 })
      if (over.length === 0) return SWEEP_MS
      await store.commit(over.map((key) => remove(lockoutKind, key, { expected: 'any' })))
      return 0
    },
  }
}

async function forget(store: Store, mount: Mount): Promise<void> {
  for (const kind of [lockoutKind, userKind, groupKind]) {
    for (;;) {
      const page = await store.keys(kind, `${mount.id}/`, { limit: 500 })
      if (page.length === 0) break
      await store.commit(page.map((key) => remove(kind, key, { expected: 'any' })))
    }
  }
  await store.commit([remove(configKind, mount.id, { expected: 'any' }), openedGuard(mount.id)])
}
