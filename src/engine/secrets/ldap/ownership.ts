import { invalid } from '../../../lib/errors.ts'
import type { Caller } from '../../backend.ts'
import { requireWritable } from '../../tenancy/owner.ts'

/** An object as far as its ownership goes, and what a write wants of it. */
export interface OwnershipClaim {
  /** What it is, for messages: `static role`. */
  readonly what: string
  readonly exists: boolean
  readonly owner: string | undefined
  readonly caller: Pick<Caller, 'owner' | 'isController'>
  readonly adopt?: boolean | undefined
  readonly disown?: boolean | undefined
}

/**
 * Who owns an object after a write: resources own what they made or adopted, and nobody else may write it; objects made through `/v1`
 * belong to nobody, and a resource takes one over only when told to (`adopt`). Throws `invalid`; its reason is `name-conflict` where
 * another resource is the owner and `owned-by-api` where nobody is.
 */
export function decideOwner({ what, exists, owner, caller, adopt, disown }: OwnershipClaim): string | undefined {
  if ((adopt || disown) && !caller.isController)
    throw invalid(`${adopt ? 'adopt' : 'disown'}: only the controller may set it`)
  requireWritable(owner, caller, `this ${what}`)
  if (exists && owner === undefined && caller.owner !== undefined && !adopt)
    throw invalid(`this ${what} was made through the API and belongs to no resource`, { reason: 'owned-by-api' })
  return disown ? undefined : caller.owner
}

/**
 * Whether a role may be used by whoever asks: a tenant uses only what belongs to the resource that it asks for, whatever the one who speaks
 * for all tenants may see. Others are held by their policies alone.
 */
export function isForCaller(role: { readonly owner?: string }, caller: Pick<Caller, 'owner' | 'principal'>): boolean {
  return caller.principal === undefined || (role.owner !== undefined && role.owner === caller.owner)
}
