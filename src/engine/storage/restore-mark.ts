import * as z from 'zod'
import { type Change, instantCodec, put, recordKind, remove, type Store } from './store.ts'

/**
 * Says that the store was laid down from a backup and no account in it was proven since: its passwords may be older than those in the
 * directory. Whoever proves them clears the mark in the commit that records so.
 */
const markKind = recordKind('core/', z.object({ at: instantCodec }))
export interface RestoreMark {
  readonly at: Date
  /** Greater than every version in the backup, less than every version given since. */
  readonly version: number
}

const KEY = 'restored'

export async function readRestoreMark(store: Store): Promise<RestoreMark | undefined> {
  const stored = await store.read(markKind, KEY)
  return stored && { at: stored.value.at, version: stored.version }
}

export function setRestoreMark(at: Date): Change {
  return put(markKind, KEY, { at }, { expected: 'any' })
}

export function clearRestoreMark(mark: RestoreMark): Change {
  return remove(markKind, KEY, { expected: mark.version })
}
