import { invalid } from '../../lib/errors.ts'
import { isBelow } from '../directory/dn.ts'
import type { TenancyEntry, TenancyTable, TenantKind } from './table.ts'

/** What a tenant asks for; pure decisions over the table. All of them throw `invalid` with reason `not-permitted`. */
export interface TenantClaim {
  /** `kubernetes:<namespace>`. */
  readonly principal: string
  readonly kind: TenantKind
}

export interface StaticRoleClaim {
  readonly name: string
  readonly rotationPeriodMs: number
  /** DN of the entry as the directory gave it; `undefined` where none is known. */
  readonly entryDn: string | undefined
  /** Roles that the tenant has besides this one. */
  readonly otherRoles: number
}

/**
 * A tenant learns the same whether an account does not exist, is somebody else's or is the mount's own: nothing about it.
 */
export const NO_SUCH_ACCOUNT = 'username: there is no such account, or this tenant may not manage it'

const refuse = (message: string) => invalid(message, { reason: 'not-permitted' })

/** Whether a tenant may have this static role now. One entry of the table must allow all of it. */
export function requireStaticRole(table: TenancyTable, principal: string, claim: StaticRoleClaim): void {
  const named = requireName(table, { principal, kind: 'StaticRole' }, claim.name)
  const slow = named.filter((entry) => claim.rotationPeriodMs >= entry.minRotationPeriodMs)
  if (slow.length === 0) {
    const least = Math.min(...named.map((entry) => entry.minRotationPeriodMs))
    throw refuse(`rotation_period must be at least ${least / 1000} seconds for this tenant`)
  }
  const { entryDn } = claim
  const covering = slow.filter((entry) => entryDn !== undefined && covers(entry, entryDn))
  if (entryDn === undefined || covering.length === 0 || isDenied(table, principal, entryDn))
    throw refuse(NO_SUCH_ACCOUNT)
  if (!covering.some((entry) => entry.maxRoles === 0 || claim.otherRoles < entry.maxRoles))
    throw refuse('this tenant has as many roles as it may have (max_roles)')
}

/** Whether a tenant may have an object of this kind and name; returns the entries that say so. */
export function requireName(table: TenancyTable, claim: TenantClaim, name: string): TenancyEntry[] {
  const mine = entriesFor(table, claim)
  if (mine.length === 0) throw refuse(`this tenant may not have a ${claim.kind} on this mount`)
  const namespace = claim.principal.slice(claim.principal.indexOf(':') + 1)
  const named = mine.filter((entry) => entry.freeRoleNames || name.startsWith(`${namespace}/`))
  if (named.length === 0) throw refuse(`the name must begin with "${namespace}/" for this tenant`)
  return named
}

/** Whether the entry may be managed for a tenant; asked again before every write to it, because entries move and tables change. */
export function requireEntry(table: TenancyTable, claim: TenantClaim, entryDn: string): void {
  const covered = entriesFor(table, claim).some((entry) => covers(entry, entryDn))
  if (!covered || isDenied(table, claim.principal, entryDn)) throw refuse(NO_SUCH_ACCOUNT)
}

function entriesFor({ entries }: TenancyTable, { principal, kind }: TenantClaim): TenancyEntry[] {
  return entries.filter((entry) => entry.principals.includes(principal) && entry.kinds.includes(kind))
}

function covers(entry: TenancyEntry, dn: string): boolean {
  return entry.allowedDns.some((base) => isBelow(dn, base))
}

/** A denial in any entry that names the tenant wins, whatever its kinds. */
function isDenied({ entries }: TenancyTable, principal: string, dn: string): boolean {
  return entries.some(
    (entry) => entry.principals.includes(principal) && entry.deniedDns.some((base) => isBelow(dn, base)),
  )
}
