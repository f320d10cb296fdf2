import { setImmediate as turnOfTheLoop } from 'node:timers/promises'
import { backoffMs } from '../../lib/backoff.ts'
import type { Clock } from '../../lib/clock.ts'
import type { Random } from '../../lib/random.ts'
import { waitInLine } from '../../lib/waiting-line.ts'

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

const BACKOFF = { firstMs: 1_000, limitMs: 60_000 }

export function createServers({ clock, random }: { readonly clock: Clock; readonly random: Random }): Servers {
  const down = new Map<string, { failures: number; untilMs: number }>()
  const gates = new Map<string, Gate>()

  /** A place that becomes free goes to who has waited longest, never past the line. */
  function leave(key: string, gate: Gate): void {
    const next = gate.waiting.shift()
    if (next) next()
    else {
      gate.inside -= 1
      if (gate.inside === 0) gates.delete(key)
    }
  }

  return {
    order(urls) {
      const nowMs = clock.monotonicMs()
      const restMs = new Map<string, number>()
      for (const url of urls) {
        const found = down.get(url)
        restMs.set(url, Math.max(0, (found?.untilMs ?? 0) - nowMs))
        // Its time is over: who asks now finds out whether it is back, while everybody else goes on elsewhere.
        if (found && found.untilMs <= nowMs) found.untilMs = nowMs + backoffMs(found.failures, BACKOFF, random)
      }
      return [...urls].sort((a, b) => (restMs.get(a) ?? 0) - (restMs.get(b) ?? 0))
    },
    failed(url) {
      const failures = (down.get(url)?.failures ?? 0) + 1
      const waitMs = backoffMs(failures, BACKOFF, random)
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
      if (gate.inside < limit) gate.inside += 1
      else {
        await waitInLine(gate.waiting, signal)
        // Whose place this was has told by then how it went, if this was the last server to try.
        await turnOfTheLoop()
      }
      let left = false
      return () => {
        if (!left) leave(key, gate)
        left = true
      }
    },
  }
}
