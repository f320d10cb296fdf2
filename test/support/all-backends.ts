import { createDirectoryGuard } from '../../src/engine/account/guard.ts'
import { createAccountTurner } from '../../src/engine/account/turn.ts'
import { createLdapAuthBackend } from '../../src/engine/auth/ldap/backend.ts'
import { createTokenBackend } from '../../src/engine/auth/token/backend.ts'
import type { Backend } from '../../src/engine/backend.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { createIdentityService } from '../../src/engine/identity/identity-service.ts'
import { MountTable } from '../../src/engine/mount/mount-table.ts'
import { createPolicyService } from '../../src/engine/policy/policy-service.ts'
import { createLdapSecretsBackend } from '../../src/engine/secrets/ldap/backend.ts'
import { capabilityRoutes } from '../../src/engine/sys/capabilities.ts'
import { SYSTEM_TTL_MS } from '../../src/engine/sys/mount-settings.ts'
import { policyRoutes } from '../../src/engine/sys/policies.ts'
import { createSystemBackend } from '../../src/engine/sys/system-backend.ts'
import { createTokenService } from '../../src/engine/token/token-service.ts'
import { systemClock as clock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom as random } from '../../src/lib/random.ts'
import { openEngineStore } from './engine-store.ts'

/** Every backend of this version by the path of its default mount, over an empty store: for tests that walk through all routes and fields. */
export async function allBackends(): Promise<ReadonlyMap<string, Backend>> {
  const { store, barrier } = await openEngineStore(clock)
  const log = createLogger({ level: 'silent' })
  const door = createDirectoryDoor({ clock, random })
  const guard = createDirectoryGuard({ store, clock, random, log })
  const turner = createAccountTurner({ door, guard, clock, random, log })
  const mounts = new MountTable(store, new Map(), random)
  const policies = createPolicyService({ store })
  const tokens = createTokenService({
    store,
    barrier,
    clock,
    random,
    log,
    identity: createIdentityService({ store, random }),
    mounts: async () => undefined,
    systemMaxTtlMs: SYSTEM_TTL_MS,
    renewLogin: async () => undefined,
  })
  const also = [...policyRoutes({ policies }), ...capabilityRoutes({ policies, tokens })]
  return new Map([
    ['ldap/', createLdapSecretsBackend({ store, door, turner, guard, clock, random, log, mounts: async () => [] })],
    ['auth/ldap/', createLdapAuthBackend({ store, barrier, door, guard, clock, log })],
    ['auth/token/', createTokenBackend({ tokens, policies, clock })],
    [
      'sys/',
      createSystemBackend({
        mounts: () => mounts,
        store,
        clock,
        version: '0',
        clusterId: '',
        snapshotDir: undefined,
        also,
      }),
    ],
  ])
}
