import { unavailable } from '../../../lib/errors.ts'
import { waitInLine } from '../../../lib/waiting-line.ts'

/** Logins of a mount that ask its directory at once: more than the directory is asked anyway. */
const AT_ONCE = 64
/** Logins of a mount under way, those that wait among them. */
const MOST = 512

/**
 * How many logins of a mount are under way. Anybody may ask for one, so what waits must have an end: who comes beyond it is told to come again,
 * and who has gone while waiting is left out.
 */
export interface LoginTurns {
  /** Runs a login; throws `unavailable` when too many are under way. */
  admit<T>(mountId: string, login: () => Promise<T>): Promise<T>
  /** Runs the part of a login that asks the directory when its turn comes. The signals end the wait and not what has begun. */
  inTurn<T>(mountId: string, signals: readonly AbortSignal[], work: () => Promise<T>): Promise<T>
}

interface Line {
  underWay: number
  inside: number
  readonly waiting: (() => void)[]
}

export function createLoginTurns({ atOnce = AT_ONCE, most = MOST } = {}): LoginTurns {
  const lines = new Map<string, Line>()
  const lineOf = (mountId: string): Line => {
    const line = lines.get(mountId) ?? { underWay: 0, inside: 0, waiting: [] }
    lines.set(mountId, line)
    return line
  }
  return {
    async admit(mountId, login) {
      const line = lineOf(mountId)
      if (line.underWay >= most) throw unavailable('too many logins are under way; try again soon')
      line.underWay += 1
      try {
        return await login()
      } finally {
        line.underWay -= 1
        if (line.underWay === 0) lines.delete(mountId)
      }
    },

    async inTurn(mountId, signals, work) {
      const line = lineOf(mountId)
      if (line.inside < atOnce) line.inside += 1
      else await waitInLine(line.waiting, ...signals)
      try {
        for (const signal of signals) signal.throwIfAborted()
        return await work()
      } finally {
        const next = line.waiting.shift()
        if (next) next()
        else line.inside -= 1
      }
    },
  }
}
