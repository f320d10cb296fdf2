import type { Condition } from '../schema/conditions.ts'
import type { LdapStaticRoleSpec, LdapStaticRoleStatus } from '../schema/ldap-static-role.ts'
import type { Resource, ResourceRef, Source } from './source/source.ts'

/*
 * Which resources want one directory account, or one name in the engine. One account has one owner: the oldest claimant wins. An index,
 * because this is asked for each new object. What only the directory can tell (two names for one entry) the engine finds.
 */

export interface Claimant {
  readonly uid: string
  readonly createdAt: Date
  /** It was told that it may not have the account, or it is going, or nobody has looked whether it may: it stands in nobody's way. */
  readonly refused: boolean
}

export class ClaimIndex {
  readonly #source: Pick<Source, 'get'>
  /** What is claimed → who claims it, by `namespace/name`. */
  readonly #claims = new Map<string, Map<string, ResourceRef>>()
  readonly #known = new Map<string, readonly string[]>()

  constructor(source: Pick<Source, 'get'>) {
    this.#source = source
  }

  /** Takes note of an object as it is now, also when it is gone. */
  note(ref: ResourceRef): void {
    const key = `${ref.namespace}/${ref.name}`
    for (const claim of this.#known.get(key) ?? []) {
      const rivals = this.#claims.get(claim)
      rivals?.delete(key)
      if (rivals?.size === 0) this.#claims.delete(claim)
    }
    this.#known.delete(key)
    const resource = this.#source.get(ref)
    if (!resource) return
    const claims = claimsOf(resource)
    this.#known.set(key, claims)
    for (const claim of claims) {
      const rivals = this.#claims.get(claim) ?? new Map<string, ResourceRef>()
      this.#claims.set(claim, rivals.set(key, ref))
    }
  }

  /** Others that want what this one wants. */
  rivals(resource: Resource): ResourceRef[] {
    const { name, namespace } = resource.metadata
    const found = claimsOf(resource).flatMap((claim) => [...(this.#claims.get(claim)?.entries() ?? [])])
    const others = new Map(found)
    others.delete(`${namespace}/${name}`)
    return [...others.values()]
  }

  /** Whether an older one that may have it stands before this one. */
  isBehindAnOlder(resource: Resource): boolean {
    const others = this.rivals(resource).flatMap((ref) => this.#source.get(ref) ?? [])
    return olderClaimant(claimant(resource), others.map(claimant)) !== undefined
  }
}

/** From the unparsed spec: an object that is not valid claims nothing that matters. */
function claimsOf({ metadata, spec }: Resource): string[] {
  const { engineRef, username, dn, roleName } = (spec ?? {}) as Partial<LdapStaticRoleSpec>
  const role = `${engineRef?.name} role ${roleName ?? `${metadata.namespace}/${metadata.name}`}`
  const account = dn === undefined ? `${engineRef?.name} user ${username}` : `${engineRef?.name} dn ${dn}`
  return [role.toLowerCase(), account.toLowerCase()]
}

/** Whether a condition says that the object does not get what it asks for. */
export function standsAside({ type, status, reason }: Pick<Condition, 'type' | 'status' | 'reason'>): boolean {
  if (status !== 'False') return false
  return type === 'Accepted' || (type === 'Synced' && (reason === 'OwnedByApi' || reason === 'Refused'))
}

function claimant({ metadata, spec, status }: Resource): Claimant {
  const { suspend } = (spec ?? {}) as Partial<LdapStaticRoleSpec>
  const { conditions = [] } = (status ?? {}) as Partial<LdapStaticRoleStatus>
  const isAccepted = conditions.some(({ type, status: is }) => type === 'Accepted' && is === 'True')
  // A suspended object is never shown to the engine: without this anybody could reserve the accounts of other tenants by one.
  const isRefused = conditions.some(standsAside) || (suspend === true && !isAccepted)
  return {
    uid: metadata.uid,
    createdAt: metadata.creationTimestamp,
    refused: isRefused || metadata.deletionTimestamp !== undefined,
  }
}

/** The oldest that is in the way of `mine`, by uid where two are of one second. */
export function olderClaimant(mine: Claimant, others: readonly Claimant[]): Claimant | undefined {
  return others.find((other) => other.uid !== mine.uid && !other.refused && isOlder(other, mine))
}

function isOlder(one: Claimant, other: Claimant): boolean {
  const difference = one.createdAt.getTime() - other.createdAt.getTime()
  return difference < 0 || (difference === 0 && one.uid < other.uid)
}
