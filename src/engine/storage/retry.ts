import { unavailable } from '../../lib/errors.ts'
import { VersionConflict } from './driver.ts'

const MOST_TRIES = 50

/** Runs a piece of work that reads, decides and commits; runs it again when somebody else changed what it read. */
export async function retryConflicts<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof VersionConflict)) throw error
      if (tries >= MOST_TRIES)
        throw unavailable('the same object is written by many at once; try again', { cause: error })
    }
  }
}
