import type { Clock } from '../../lib/clock.ts'
import type { Connection } from './connection.ts'

/**
 * Connections that wait to be used again, by key. Taking one makes it the taker's alone; giving back a broken one closes it. Those that waited
 * longer than the limit are closed.
 */
export interface Pool extends AsyncDisposable {
  take(key: string): Connection | undefined
  giveBack(key: string, connection: Connection): void
  /** A connection just opened for this key: it may be retired while it is used. */
  opened(key: string, connection: Connection): void
  /** Closes those whose key begins with `prefix`, now or when they are given back. */
  retire(prefix: string): void
}

export function createPool({ clock, idleMs }: { readonly clock: Clock; readonly idleMs: number }): Pool {
  const idle = new Map<string, { connection: Connection; sinceMs: number }[]>()
  const inUse = new Map<Connection, string>()
  const retired = new WeakSet<Connection>()
  const stop = new AbortController()
  let sweeping = false

  async function sweep(): Promise<void> {
    sweeping = true
    while (idle.size > 0 && !stop.signal.aborted) {
      await clock.sleep(idleMs / 2, stop.signal).catch(() => undefined)
      const before = clock.monotonicMs() - idleMs
      for (const [key, list] of idle) {
        const kept = list.filter(({ connection, sinceMs }) => {
          const keep = sinceMs > before && connection.isUsable
          if (!keep) connection.close()
          return keep
        })
        if (kept.length === 0) idle.delete(key)
        else idle.set(key, kept)
      }
    }
    sweeping = false
  }

  return {
    take(key) {
      const list = idle.get(key)
      for (let entry = list?.pop(); entry; entry = list?.pop()) {
        if (!entry.connection.isUsable) continue
        inUse.set(entry.connection, key)
        return entry.connection
      }
      idle.delete(key)
      return undefined
    },
    opened(key, connection) {
      inUse.set(connection, key)
    },
    giveBack(key, connection) {
      inUse.delete(connection)
      if (!connection.isUsable || retired.has(connection) || stop.signal.aborted) return connection.close()
      const list = idle.get(key) ?? []
      list.push({ connection, sinceMs: clock.monotonicMs() })
      idle.set(key, list)
      if (!sweeping) void sweep()
    },
    retire(prefix) {
      for (const [key, list] of idle) {
        if (!key.startsWith(prefix)) continue
        for (const { connection } of list) connection.close()
        idle.delete(key)
      }
      for (const [connection, key] of inUse) if (key.startsWith(prefix)) retired.add(connection)
    },
    async [Symbol.asyncDispose]() {
      stop.abort()
      this.retire('')
    },
  }
}
