import { createHash, createHmac } from 'node:crypto'
import type { Clock } from '../../lib/clock.ts'
import { derived } from '../../lib/derived.ts'
import { invalid } from '../../lib/errors.ts'
import type { Random } from '../../lib/random.ts'
import { openSocket } from './connect.ts'
import { type Connection, createConnection } from './connection.ts'
import type { BindIdentity, DirectoryDoor, DirectorySettings, Session } from './directory.ts'
import { DirectoryError, isDirectoryError } from './errors.ts'
import { present } from './filter.ts'
import { createPool } from './pool.ts'
import { createServers } from './servers.ts'

export interface DoorLimits {
  /** Pieces of work at once at one server, logins apart; 8 by default. */
  readonly perServer?: number
  /** Login binds at once at one server; 32 by default. */
  readonly loginsPerServer?: number
  /** How long an unused connection is kept; one minute by default. */
  readonly idleMs?: number
}

/** What any server can answer. */
export const ROOT = {
  base: '',
  scope: 'base',
  filter: present('objectClass'),
  attributes: ['1.1'],
  sizeLimit: 1,
} as const

/** Two settings that reach a directory in the same way have the same. */
const fingerprint = derived((settings: DirectorySettings): string => {
  const { clientKey, ...rest } = settings
  return createHash('sha256')
    .update(JSON.stringify(rest))
    .update(clientKey?.reveal() ?? '')
    .digest('base64url')
})

export function createDirectoryDoor(deps: {
  readonly clock: Clock
  readonly random: Random
  readonly limits?: DoorLimits
}): DirectoryDoor {
  const { perServer = 8, loginsPerServer = 32, idleMs = 60_000 } = deps.limits ?? {}
  const servers = createServers(deps)
  const pool = createPool({ clock: deps.clock, idleMs })
  // Keys of the pool must not tell passwords, not even to who reads the memory of the pool alone.
  const hashKey = deps.random.bytes(32)
  const identityKey = derived(({ name, password }: BindIdentity) =>
    createHmac('sha256', hashKey).update(`${name}\0${password.reveal()}`).digest('base64url'),
  )

  /** Tries the servers in order; only one that cannot be reached makes way for the next. */
  async function atSomeServer<T>(
    settings: DirectorySettings,
    only: string | undefined,
    signal: AbortSignal,
    work: (server: string) => Promise<T>,
  ): Promise<T> {
    const failures: DirectoryError[] = []
    const isKnown = only !== undefined && settings.urls.includes(only)
    const candidates = isKnown ? [only] : servers.order(settings.urls)
    for (const server of candidates) {
      try {
        return await work(server)
      } catch (error) {
        if (!(error instanceof Unreached)) throw error
        failures.push(error.cause)
        signal.throwIfAborted()
      }
    }
    const [first] = failures
    if (first && failures.length === 1) throw first
    throw new DirectoryError('unavailable', `no server can be reached: ${failures.map((f) => f.message).join('; ')}`, {
      cause: failures,
    })
  }

  /** A new connection, prepared (bound, or not yet). What fails here has changed nothing: another server may be tried. */
  async function open(
    server: string,
    settings: DirectorySettings,
    signal: AbortSignal,
    prepare: (connection: Connection) => Promise<void>,
  ): Promise<Connection> {
    let connection: Connection | undefined
    try {
      connection = createConnection(
        await openSocket(server, settings, { signal, now: deps.clock.now() }),
        server,
        settings,
      )
      const opened = connection
      await abortable(opened, signal, () => prepare(opened))
      return opened
    } catch (error) {
      connection?.abort()
      signal.throwIfAborted()
      // A server that answers "busy" to a bind, or not at all, is as good as down: the next one may do.
      if (!isDirectoryError(error) || error.class !== 'unavailable') throw error
      servers.failed(server)
      throw new Unreached(error)
    }
  }

  /**
   * Runs work on a pooled connection, or on a new one prepared by `prepare`. Where nothing it was asked was answered or may have changed
   * anything, the work is begun again: on a new connection when the server had closed the pooled one, else at the next server.
   */
  async function onConnection<T>(
    key: string,
    server: string,
    settings: DirectorySettings,
    signal: AbortSignal,
    prepare: (connection: Connection) => Promise<void>,
    work: (connection: Connection) => Promise<T>,
    keep: boolean,
  ): Promise<T> {
    for (let pooled = keep ? pool.take(key) : undefined; ; pooled = undefined) {
      const connection = pooled ?? (await open(server, settings, signal, prepare))
      if (keep && !pooled) pool.opened(key, connection)
      const used = watch(connection, pooled !== undefined)
      try {
        const result = await abortable(connection, signal, () => work(used.connection))
        servers.reached(server)
        return result
      } catch (error) {
        if (!isDirectoryError(error) || connection.lost === undefined) throw error
        if (signal.aborted) throw error.class === 'unknown-outcome' ? error : signal.reason
        if (pooled && connection.lost === 'closed' && used.isUntouched()) continue
        servers.failed(server)
        throw used.isUntouched() ? new Unreached(error) : error
      } finally {
        if (keep) pool.giveBack(key, connection)
        else connection.close()
      }
    }
  }

  return {
    async withSession(settings, identity, signal, work, options = {}) {
      requireName(identity)
      return atSomeServer(settings, options.server, signal, async (server) => {
        // Lanes of their own: who waits for one of the others while holding a place must not wait for itself.
        const kind = options.fresh ? 'fresh' : identity.name === '' ? 'anonymous' : 'work'
        const lane = options.isLogin ? `login ${kind}` : kind
        const limit = options.fresh || options.isLogin ? loginsPerServer : perServer
        const leave = await servers.enter(lane, server, limit, signal)
        try {
          const { admission } = options
          admission?.entered()
          const key = `${fingerprint(settings)} ${identityKey(identity)} ${server}`
          // A bind without a password locks no account, however often it is refused.
          const isAsked = admission !== undefined && !identity.password.isEmpty
          const bind = (connection: Connection) =>
            isAsked ? admission.bind(server, signal, () => connection.bind(identity)) : connection.bind(identity)
          const run = (session: Session) => {
            admission?.connected()
            return work(session)
          }
          const mayWait = options.fresh !== true && admission?.isProof !== true
          return await onConnection(key, server, settings, signal, bind, run, mayWait)
        } finally {
          leave()
        }
      })
    },

    async verify(settings, identity, signal, options = {}) {
      requireName(identity)
      if (identity.password.isEmpty && identity.name !== '' && options.allowUnauthenticated !== true)
        throw invalid('a bind without a password proves nothing and is not sent')
      return atSomeServer(settings, options.server, signal, async (server) => {
        const leave = await servers.enter('login', server, loginsPerServer, signal)
        try {
          const key = `${fingerprint(settings)} login ${server}`
          return await onConnection(key, server, settings, signal, async () => undefined, accepts(identity), true)
        } catch (error) {
          // "Busy", "unavailable": another server can answer as well.
          throw isDirectoryError(error) && error.class === 'unavailable' ? new Unreached(error) : error
        } finally {
          leave()
        }
      })
    },

    forget(settings) {
      servers.forget(settings.urls)
      pool.retire(fingerprint(settings))
    },

    [Symbol.asyncDispose]: () => pool[Symbol.asyncDispose](),
  }
}

function accepts(identity: BindIdentity): (connection: Connection) => Promise<boolean> {
  return async (connection) => {
    try {
      await connection.bind(identity)
      return true
    } catch (error) {
      if (isDirectoryError(error) && error.class === 'bind-refused') return false
      throw error
    }
  }
}

/** A server that could not be reached: another one may be tried, nothing has happened. */
class Unreached extends Error {
  override readonly cause: DirectoryError
  constructor(cause: DirectoryError) {
    super(cause.message)
    this.cause = cause
  }
}

/** Runs work that the signal ends by ending the connection, with whatever is under way on it. */
async function abortable<T>(connection: Connection, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  const abort = () => connection.abort()
  signal.addEventListener('abort', abort, { once: true })
  try {
    signal.throwIfAborted()
    return await work()
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/**
 * Tells whether a connection has answered anything, or been asked to change anything. One that waited in the pool may have been closed long ago:
 * it must answer a question before it is told to change something, so that a modify is never lost in a dead connection.
 */
function watch(inner: Connection, isPooled: boolean): { connection: Connection; isUntouched: () => boolean } {
  let touched = false
  const answered = async <T>(work: Promise<T>): Promise<T> => {
    try {
      const result = await work
      touched = true
      return result
    } catch (error) {
      if (isDirectoryError(error) && error.resultCode !== undefined) touched = true
      throw error
    }
  }
  const prove = async () => {
    try {
      await answered(inner.search(ROOT))
    } catch (error) {
      // Any answer is one, also "you may not".
      if (!touched) throw error
    }
  }
  return {
    isUntouched: () => !touched,
    connection: {
      server: inner.server,
      close: inner.close,
      abort: inner.abort,
      get isUsable() {
        return inner.isUsable
      },
      get lost() {
        return inner.lost
      },
      bind: (identity) => answered(inner.bind(identity)),
      search: (request) => answered(inner.search(request)),
      async replace(dn, changes) {
        if (isPooled && !touched) await prove()
        touched = true
        return inner.replace(dn, changes)
      },
    },
  }
}

function requireName({ name, password }: BindIdentity): void {
  if (name === '' && !password.isEmpty) throw invalid('a password without a name cannot be bound with')
}
