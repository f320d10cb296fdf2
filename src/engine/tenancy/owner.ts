import { invalid } from '../../lib/errors.ts'
import type { Caller } from '../backend.ts'

/**
 * Throws `invalid` naming the resource when an object is owned by a resource other than the one that the caller writes for. Its reason
 * is `name-conflict` where another resource asks.
 */
export function requireWritable(owner: string | undefined, caller: Pick<Caller, 'owner'>, what: string): void {
  if (owner !== undefined && owner !== caller.owner)
    throw invalid(`${what} belongs to the resource ${owner}; change it there`, {
      reason: caller.owner === undefined ? 'owned-by-resource' : 'name-conflict',
    })
}
