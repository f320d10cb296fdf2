import * as z from 'zod'
import { type Change, instantCodec, put, recordKind, remove, type Store, type Stored } from './store.ts'

/**
 * Says that the store was laid down from a backup and no account in it was proven since: its passwords may be older than those in the
 * directory. Whoever proves them clears the mark in the commit that records so.
 */
export const RestoreMark = recordKind('core/', z.object({ at: instantCodec }))
export type RestoreMark = { readonly at: Date }

const KEY = 'restored'

export function readRestoreMark(store: Store): Promise<Stored<RestoreMark> | undefined> {
  return store.read(RestoreMark, KEY)
}

export function setRestoreMark(at: Date): Change {
  return put(RestoreMark, KEY, { at }, { expected: 'any' })
}

export function clearRestoreMark(mark: Stored<RestoreMark>): Change {
  return remove(RestoreMark, KEY, { expected: mark.version })
}
