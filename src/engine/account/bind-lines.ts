import { waitInLine } from '../../lib/waiting-line.ts'
import { isDirectoryError } from '../directory/errors.ts'

interface Line {
  readonly waiting: (() => void)[]
  failure?: unknown
}

/**
 * Binds wait for each other, by key, so that what one of them learns is known before the next is sent. What cannot be reached for one is not
 * reached for those behind it either: they fail with it instead of each waiting its time.
 */
export class BindLines {
  readonly #lines = new Map<string, Line>()

  async run(key: string, signal: AbortSignal, bind: () => Promise<void>): Promise<void> {
    const known = this.#lines.get(key)
    const line: Line = known ?? { waiting: [] }
    this.#lines.set(key, line)
    const { failure } = line
    if (known) await waitInLine(line.waiting, signal)
    try {
      if (line.failure !== failure) throw line.failure
      await bind()
    } catch (error) {
      if (isDirectoryError(error) && error.class === 'unavailable') line.failure = error
      throw error
    } finally {
      const next = line.waiting.shift()
      if (next) next()
      else this.#lines.delete(key)
    }
  }
}
