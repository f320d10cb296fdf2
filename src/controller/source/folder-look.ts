import type { Clock } from '../../lib/clock.ts'
import type { Logger } from '../../lib/log.ts'
import { FolderWatch } from './folder-watch.ts'

const GATHER_MS = 60
/** A look at thousands of files takes a while, and each that we write ourselves is a reason for one: each in vain is followed by a rest. */
const REST = { times: 3, limitMs: 1_000 }

export interface FolderLookOptions {
  readonly folder: string
  /** Returns whether anything had changed. */
  readonly look: () => Promise<boolean>
  /** How long it may be left alone without a notice. */
  readonly waitMs: () => number
  readonly clock: Clock
  readonly log: Logger
}

/** Looks at a folder when the file system tells of changes in it, which are gathered for a moment, and when the time for a look has come. */
export class FolderLook {
  readonly #options: FolderLookOptions
  #awake = new AbortController()

  constructor(options: FolderLookOptions) {
    this.#options = options
  }

  /** Looks soon. */
  wake(): void {
    this.#awake.abort()
  }

  /** Ends with the signal. */
  async run(signal: AbortSignal): Promise<void> {
    const { folder, look, waitMs, clock, log } = this.#options
    using watch = new FolderWatch(folder, () => this.wake(), log)
    let restMs = 0
    while (!signal.aborted) {
      if (await watch.refresh()) this.wake()
      await clock.sleep(waitMs(), AbortSignal.any([signal, this.#awake.signal])).catch(() => undefined)
      await clock.sleep(Math.max(GATHER_MS, restMs), signal).catch(() => undefined)
      if (signal.aborted) return
      // A notice that comes while looking must not be lost: it ends the next sleep before that begins.
      this.#awake = new AbortController()
      const startMs = clock.monotonicMs()
      const isNews = await look()
      restMs = isNews ? 0 : Math.min(REST.times * (clock.monotonicMs() - startMs), REST.limitMs)
    }
  }
}
