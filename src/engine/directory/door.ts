import { createHash, createHmac } from 'node:crypto'
import type { Clock } from '../../lib/clock.ts'
import { invalid } from '../../lib/errors.ts'
import type { Random } from '../../lib/random.ts'
import { openSocket } from './connect.ts'
import { type Connection, createConnection } from './connection.ts'
import type { BindIdentity, DirectoryDoor, DirectorySettings, Session } from './directory.ts'
import { DirectoryError, isDirectoryError } from './errors.ts'
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

// ldapts takes these names for SASL mechanisms instead of names to bind with.
const SASL = /^(EXTERNAL|PLAIN|DIGEST-MD5|SCRAM-SHA-1)$/

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
  const identityKey = ({ name, password }: BindIdentity) =>
    createHmac('sha256', hashKey).update(`${name}\0${password.reveal()}`).digest('base64url')

  async function open(server: string, settings: DirectorySettings, signal: AbortSignal): Promise<Connection> {
    try {
      const connection = createConnection(await openSocket(server, settings, signal), server, settings)
      servers.reached(server)
      return connection
    } catch (error) {
      if (isDirectoryError(error) && !signal.aborted) servers.failed(server)
      throw error
    }
  }

  /** Tries the servers in order; only one that cannot be reached makes way for the next. */
  async function atSomeServer<T>(
    settings: DirectorySettings,
    only: string | undefined,
    signal: AbortSignal,
    work: (server: string) => Promise<T>,
  ): Promise<T> {
    const failures: DirectoryError[] = []
    const candidates = only === undefined ? servers.order(settings.urls) : [only]
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

  /**
   * Runs work on a pooled connection, or on a new one prepared by `prepare`. A pooled one that turns out to have been closed meanwhile is
   * replaced once, provided nothing it was asked was answered or may have changed anything.
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
      let connection = pooled
      if (!connection) {
        connection = await open(server, settings, signal).catch((error: unknown) => {
          throw isDirectoryError(error) ? new Unreached(error) : error
        })
        try {
          await prepare(connection)
        } catch (error) {
          connection.abort()
          // A server that answers "busy" to a bind, or not at all, is as good as down: the next one may do.
          throw isDirectoryError(error) && error.class === 'unavailable' ? new Unreached(error) : error
        }
        if (keep) pool.opened(key, connection)
      }
      const used = watch(connection)
      const abort = () => connection.abort()
      signal.addEventListener('abort', abort, { once: true })
      try {
        return await work(used.connection)
      } catch (error) {
        if (pooled && !pooled.isUsable && used.isUntouched() && !signal.aborted) continue
        throw error
      } finally {
        signal.removeEventListener('abort', abort)
        if (keep) pool.giveBack(key, connection)
        else connection.close()
      }
    }
  }

  return {
    async withSession(settings, identity, signal, work, options = {}) {
      requireName(identity)
      return atSomeServer(settings, options.server, signal, async (server) => {
        const leave = await servers.enter('work', server, perServer, signal)
        try {
          const key = `${fingerprint(settings)} ${identityKey(identity)} ${server}`
          const bind = (connection: Connection) => connection.bind(identity)
          const run = (session: Session) => work(session)
          return await onConnection(key, server, settings, signal, bind, run, options.fresh !== true)
        } finally {
          leave()
        }
      })
    },

    async verify(settings, identity, signal, options = {}) {
      requireName(identity)
      if (identity.password.isEmpty && options.allowUnauthenticated !== true)
        throw invalid('a bind without a password proves nothing and is not sent')
      return atSomeServer(settings, options.server, signal, async (server) => {
        const leave = await servers.enter('login', server, loginsPerServer, signal)
        try {
          const key = `${fingerprint(settings)} login ${server}`
          return await onConnection(key, server, settings, signal, async () => undefined, accepts(identity), true)
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

// Codes with which a server refuses a name or password for what it is (RFC 4511; 53 and 19 where accounts are disabled or expired).
const REFUSALS: readonly (number | undefined)[] = [19, 32, 34, 48, 49, 50, 53]

function accepts(identity: BindIdentity): (connection: Connection) => Promise<boolean> {
  return async (connection) => {
    try {
      await connection.bind(identity)
      return true
    } catch (error) {
      if (isDirectoryError(error) && REFUSALS.includes(error.resultCode)) return false
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

/** Tells whether a connection has answered anything, or been asked to change anything. */
function watch(inner: Connection): { connection: Connection; isUntouched: () => boolean } {
  let touched = false
  const answered = async <T>(work: Promise<T>): Promise<T> => {
    const result = await work
    touched = true
    return result
  }
  return {
    isUntouched: () => !touched,
    connection: {
      ...inner,
      get isUsable() {
        return inner.isUsable
      },
      bind: (identity) => answered(inner.bind(identity)),
      search: (request) => answered(inner.search(request)),
      replace(dn, changes) {
        touched = true
        return inner.replace(dn, changes)
      },
    },
  }
}

function requireName({ name, password }: BindIdentity): void {
  if (SASL.test(name)) throw invalid(`"${name}" is not a name to bind with`)
  if (name === '' && !password.isEmpty) throw invalid('a password without a name cannot be bound with')
}

function fingerprint(settings: DirectorySettings): string {
  const { clientKey, ...rest } = settings
  return createHash('sha256')
    .update(JSON.stringify(rest))
    .update(clientKey?.reveal() ?? '')
    .digest('base64url')
}
