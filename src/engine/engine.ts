import * as z from 'zod'
import type { Clock } from '../lib/clock.ts'
import type { Logger } from '../lib/log.ts'
import type { Random } from '../lib/random.ts'
import type { Secret } from '../lib/secret.ts'
import { runWorker, type Worker } from '../lib/worker.ts'
import { createDirectoryGuard } from './account/guard.ts'
import { createAccountTurner } from './account/turn.ts'
import { type AuditDevice, createAudit } from './audit/audit.ts'
import { createRotationRecords } from './audit/rotation-records.ts'
import { createLdapAuthBackend } from './auth/ldap/backend.ts'
import { createTokenBackend } from './auth/token/backend.ts'
import type { Backend } from './backend.ts'
import { createDirectoryDoor } from './directory/door.ts'
import { createDoor } from './handle.ts'
import { createIdentityService } from './identity/identity-service.ts'
import { MountTable } from './mount/mount-table.ts'
import { createPolicyService } from './policy/policy-service.ts'
import type { EngineDoor } from './request.ts'
import type { Barrier } from './seal/barrier.ts'
import { createLdapSecretsBackend } from './secrets/ldap/backend.ts'
import { instantCodec, put, recordKind, type Store } from './storage/store.ts'
import { capabilityRoutes } from './sys/capabilities.ts'
import { createEventPruner } from './sys/event-pruner.ts'
import { SYSTEM_TTL_MS } from './sys/mount-settings.ts'
import { policyRoutes } from './sys/policies.ts'
import { createSystemBackend } from './sys/system-backend.ts'
import { createTokenService } from './token/token-service.ts'

/**
 * Wires the core and the backends together; the only file of the engine that knows them all. Everything it makes is stateless but for
 * the store: an engine may be killed at any moment and another started on the same store.
 */
export interface Engine extends EngineDoor, AsyncDisposable {
  /** For the controller beside this engine: a token made at this start, good only on the unix socket and in the same process. */
  readonly controllerToken: Secret
}

export interface EngineOptions {
  readonly store: Store
  readonly barrier: Barrier
  /** No other process can have the store open. */
  readonly isExclusive: boolean
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly audit: AuditDevice | undefined
  readonly version: string
  /** Where backups go; `undefined` for a store that is not on disk. */
  readonly snapshotDir: string | undefined
  /** Keeps the root token of a new store where its owner finds it. Called before the store counts as initialised. */
  readonly keepRootToken: (token: Secret) => Promise<void>
}

const initKind = recordKind('core/', z.object({ clusterId: z.string(), at: instantCodec }))

export async function startEngine(options: EngineOptions): Promise<Engine> {
  const { store, barrier, clock, random, log, isExclusive } = options
  const stop = new AbortController()
  const audit = createAudit(options.audit, barrier)
  const door = createDirectoryDoor({ clock, random })
  const guard = createDirectoryGuard({ store, clock, random, log })
  const turner = createAccountTurner({ door, guard, clock, random, log, isExclusive })

  const backends = new Map<string, Backend>()
  const mounts = new MountTable(store, backends, random)
  const policies = createPolicyService({ store })
  const identity = createIdentityService({ store, random })
  const tokens = createTokenService({
    store,
    barrier,
    clock,
    random,
    log,
    identity,
    mounts: (id) => mounts.byId(id),
    systemMaxTtlMs: SYSTEM_TTL_MS,
    async renewLogin(mount, renewal, signal) {
      return mounts.backendOf(mount).renewLogin?.(mount, renewal, signal)
    },
  })

  const init = await store.read(initKind, 'init')
  const clusterId = init?.value.clusterId ?? random.uuid()
  const ldap = createLdapSecretsBackend({
    store,
    door,
    turner,
    guard,
    clock,
    random,
    log,
    isExclusive,
    mounts: () => mounts.ofType('secret', 'ldap'),
  })
  backends.set('secret/ldap', ldap)
  backends.set('auth/ldap', createLdapAuthBackend({ store, barrier, door, guard, clock, log }))
  backends.set('auth/token', createTokenBackend({ tokens, policies, clock }))
  backends.set(
    'system/system',
    createSystemBackend({
      mounts: () => mounts,
      store,
      clock,
      version: options.version,
      clusterId,
      snapshotDir: options.snapshotDir,
      also: [...policyRoutes({ policies }), ...capabilityRoutes({ policies, tokens })],
    }),
  )

  await mounts.ensure([
    { class: 'secret', type: 'ldap', path: 'ldap/' },
    { class: 'auth', type: 'ldap', path: 'auth/ldap/' },
  ])
  if (!init) {
    await options.keepRootToken(await tokens.issueRoot())
    await store.commit([put(initKind, 'init', { clusterId, at: clock.now() }, { expected: 0 })])
  }
  const controllerToken = await tokens.issueController()

  const workers: Worker[] = [
    tokens.worker,
    createEventPruner({ store, clock }),
    ...(options.audit ? [createRotationRecords({ store, audit, clock })] : []),
    ...[...backends.values()].flatMap((backend) => backend.workers ?? []),
  ]
  const running = workers.map((worker) =>
    runWorker(worker, {
      clock,
      signal: stop.signal,
      onError: (error) => log.error({ err: error, worker: worker.name }, 'background work failed; it is tried again'),
    }),
  )

  const { handle } = createDoor({ mounts, tokens, policies, audit, clock, log })
  return {
    handle,
    controllerToken,
    async [Symbol.asyncDispose]() {
      stop.abort()
      await Promise.allSettled(running)
      await turner[Symbol.asyncDispose]()
      await door[Symbol.asyncDispose]()
    },
  }
}
