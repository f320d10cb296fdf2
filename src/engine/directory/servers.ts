import { backoffMs } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import type { Random } from '../../lib/random.ts'

/**
 * Remembers which servers could not be reached, and how much each is asked at once. Servers are tried in the configured order; one that is
 * down is tried last until its back-off (1 s to 60 s) is over, so that a black-holed first server does not delay every operation.
 */
export interface Servers {
  /** The servers in the order to try them now. */
  order(urls: readonly string[]): string[]
  failed(url: string): void
  reached(url: string): void
  forget(urls: readonly string[]): void
  /** Waits until less than `limit` pieces of work of this pool are under way at the server; call the result when done. */
  enter(pool: string, url: string, limit: number, signal: AbortSignal): Promise<() => void>
}

interface Gate {
  inside: number
  readonly waiting: (() => void)[]
}

export function createServers({ clock, random }: { readonly clock: Clock; readonly random: Random }): Servers {
  const down = new Map<string, { failures: number; untilMs: number }>()
  const gates = new Map<string, Gate>()

  function leave(key: string, gate: Gate): void {
    gate.inside -= 1
    gate.waiting.shift()?.()
    if (gate.inside === 0 && gate.waiting.length === 0) gates.delete(key)
  }

  return {
    order(urls) {
      const nowMs = clock.monotonicMs()
      const restMs = (url: string) => Math.max(0, (down.get(url)?.untilMs ?? 0) - nowMs)
      return [...urls].sort((a, b) => restMs(a) - restMs(b))
    },
    failed(url) {
      const failures = (down.get(url)?.failures ?? 0) + 1
      const waitMs = backoffMs(failures, { firstMs: 1_000, limitMs: 60_000 }, random)
      down.set(url, { failures, untilMs: clock.monotonicMs() + waitMs })
    },
    reached: (url) => void down.delete(url),
    forget(urls) {
      for (const url of urls) down.delete(url)
    },
    async enter(pool, url, limit, signal) {
      const key = `${pool} ${url}`
      const gate = gates.get(key) ?? { inside: 0, waiting: [] }
      gates.set(key, gate)
      while (gate.inside >= limit) await turn(gate, signal)
      gate.inside += 1
      let left = false
      return () => {
        if (!left) leave(key, gate)
        left = true
      }
    },
  }
}

function turn(gate: Gate, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    const go = () => {
      signal.removeEventListener('abort', abort)
      resolve()
    }
    const abort = () => {
      gate.waiting.splice(gate.waiting.indexOf(go), 1)
      reject(signal.reason)
    }
    gate.waiting.push(go)
    signal.addEventListener('abort', abort, { once: true })
  })
}
