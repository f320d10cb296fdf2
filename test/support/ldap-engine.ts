import { createDirectoryGuard } from '../../src/engine/account/guard.ts'
import { createAccountTurner } from '../../src/engine/account/turn.ts'
import type { TurnSteps } from '../../src/engine/account/turn-step.ts'
import type { Caller, Mount, Reply } from '../../src/engine/backend.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import type { Operation } from '../../src/engine/request.ts'
import { findRoute } from '../../src/engine/router.ts'
import { createLdapSecretsBackend } from '../../src/engine/secrets/ldap/backend.ts'
import type { StorageDriver } from '../../src/engine/storage/driver.ts'
import { openStore } from '../../src/engine/storage/open.ts'
import type { Store } from '../../src/engine/storage/store.ts'
import { type Clock, systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { runWorker } from '../../src/lib/worker.ts'
import type { Values } from '../../src/schema/answer.ts'

/** The LDAP secrets engine over a store, without the request pipeline: its routes are called directly, fields parsed as the pipeline does. */
export interface LdapEngine extends AsyncDisposable {
  readonly store: Store
  readonly mount: Mount
  request(operation: Operation, path: string, options?: RequestOptions): Promise<Answer>
  write(path: string, fields?: Fields, caller?: Partial<Caller>): Promise<Answer>
  /** The data of a read; throws when there is none. */
  read(path: string): Promise<Values>
  /** Types of the events so far, with their paths. */
  events(): Promise<string[]>
  /** Begins the background work. */
  start(): void
  unmount(): Promise<void>
  /** Another mount over the same store. */
  beside(mount: Mount): Promise<LdapEngine>
}

type Fields = Readonly<Record<string, unknown>>
interface RequestOptions {
  readonly fields?: Fields
  readonly caller?: Partial<Caller>
}
export interface Answer {
  readonly reply: Reply
  readonly warnings: readonly string[]
}

export const ROOT: Caller = {
  displayName: 'root',
  entityId: '',
  policies: ['root'],
  tokenAccessor: 'accessor',
  tokenKey: 'key',
  isController: false,
}

/** How the controller asks for a tenant's resource. */
export function tenant(namespace: string, uid = 'uid-1'): Partial<Caller> {
  return {
    displayName: `kubernetes:${namespace}`,
    principal: `kubernetes:${namespace}`,
    owner: `cr:${uid}`,
    isController: true,
  }
}

export const MOUNT: Mount = {
  id: 'mount-1',
  class: 'secret',
  type: 'ldap',
  path: 'ldap/',
  accessor: 'ldap_1',
  description: '',
  defaultLeaseTtlMs: 0,
  maxLeaseTtlMs: 0,
  lockout: { threshold: 5, durationMs: 900_000, counterResetMs: 900_000, disabled: false },
}

const plainSeal = {
  wrap: async (plain: Uint8Array) => plain,
  unwrap: async (wrapped: Uint8Array) => wrapped,
}

export async function startLdapEngine(options: {
  readonly driver: StorageDriver
  readonly clock?: Clock
  readonly mount?: Mount
  readonly steps?: TurnSteps
}): Promise<LdapEngine> {
  const { driver, clock = systemClock, mount = MOUNT, steps } = options
  return engineOver(await openStore({ driver, seal: plainSeal, clock }), driver, clock, mount, steps)
}

async function engineOver(
  store: Store,
  driver: AsyncDisposable,
  clock: Clock,
  mount: Mount,
  steps?: TurnSteps,
): Promise<LdapEngine> {
  const random = systemRandom
  const log = createLogger({ level: 'silent' })
  const door = createDirectoryDoor({ clock, random })
  const guard = createDirectoryGuard({ store, clock, random, log })
  const turner = createAccountTurner({ door, guard, clock, random, log, isExclusive: true, ...(steps && { steps }) })
  const mounts = async () => [mount]
  const backend = createLdapSecretsBackend({
    store,
    door,
    turner,
    guard,
    clock,
    random,
    log,
    mounts,
    isExclusive: true,
  })
  const stop = new AbortController()
  const running: Promise<void>[] = []

  const engine: LdapEngine = {
    store,
    mount,
    async request(operation, path, { fields = {}, caller = {} } = {}) {
      const match = findRoute(backend, path)
      const handler = match?.route[operation]
      if (!match || !handler) throw new Error(`no route for ${operation} ${path}`)
      const warnings: string[] = []
      const reply = await handler({
        mount,
        params: match.params,
        fields: match.route.body?.parse(fields).value ?? {},
        caller: { ...ROOT, ...caller },
        remote: { address: '127.0.0.1', transport: 'tcp' },
        requestId: 'request-1',
        signal: stop.signal,
        warn: (text) => warnings.push(text),
      })
      return { reply, warnings }
    },
    write: (path, fields = {}, caller = {}) => engine.request('write', path, { fields, caller }),
    async read(path) {
      const { reply } = await engine.request('read', path)
      if (!reply || !('data' in reply) || !reply.data) throw new Error(`nothing at ${path}`)
      return reply.data
    },
    async events() {
      const { events } = await store.events(0, 1000)
      return events.map((event) => `${event.type} ${event.path}`)
    },
    start() {
      const onError = (error: unknown) => console.error('background work failed', error)
      for (const worker of backend.workers ?? [])
        running.push(runWorker(worker, { clock, signal: stop.signal, onError }))
    },
    unmount: async () => backend.unmount?.(mount, stop.signal),
    beside: (another) => engineOver(store, { [Symbol.asyncDispose]: async () => undefined }, clock, another),
    async [Symbol.asyncDispose]() {
      stop.abort()
      await Promise.allSettled(running)
      await turner[Symbol.asyncDispose]()
      await door[Symbol.asyncDispose]()
      await driver[Symbol.asyncDispose]()
    },
  }
  return engine
}

/** A value of an answer as text, a password revealed. */
export function text(value: Values[string] | undefined): string {
  if (value instanceof Secret) return value.reveal()
  if (value instanceof Date) return value.toISOString()
  return typeof value === 'string' ? value : JSON.stringify(value)
}
