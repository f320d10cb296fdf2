import { waitInLine } from '../../../lib/waiting-line.ts'

/**
 * How many attempts under one name may be under way at once: as many as may still fail. Who asks for more waits until one has ended and
 * been counted; names do not wait for each other.
 */
export interface Attempts {
  /** Resolves with what to call at the end of the attempt; `undefined` when `left` says that none is allowed. */
  enter(key: string, left: () => Promise<number>, ...signals: readonly AbortSignal[]): Promise<(() => void) | undefined>
}

interface Line {
  /** Under way, or asking whether they may be. */
  inside: number
  readonly waiting: (() => void)[]
}

export function createAttempts(): Attempts {
  const lines = new Map<string, Line>()

  /** Lets the next one look; whoever was told and does not go on must tell the next. */
  function next(key: string): void {
    const line = lines.get(key)
    line?.waiting.shift()?.()
    if (line?.inside === 0 && line.waiting.length === 0) lines.delete(key)
  }

  function leave(key: string, line: Line): void {
    line.inside -= 1
    next(key)
  }

  return {
    async enter(key, left, ...signals) {
      for (;;) {
        const over = signals.find(({ aborted }) => aborted)
        if (over) {
          next(key)
          throw over.reason
        }
        const line = lines.get(key) ?? { inside: 0, waiting: [] }
        lines.set(key, line)
        // Counted before the counter is read: each of the others is either in this number or in the counter.
        line.inside += 1
        const mine = line.inside
        let allowed: number
        try {
          allowed = await left()
        } catch (error) {
          leave(key, line)
          throw error
        }
        if (mine <= allowed) {
          let isLeft = false
          // There may be room for another one, whom nobody else would tell.
          next(key)
          return () => {
            if (!isLeft) leave(key, line)
            isLeft = true
          }
        }
        if (allowed === 0) {
          leave(key, line)
          return undefined
        }
        line.inside -= 1
        // Alone by now: nobody is left to wait for.
        if (line.inside > 0) await waitInLine(line.waiting, ...signals)
      }
    },
  }
}
