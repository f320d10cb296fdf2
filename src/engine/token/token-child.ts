import { invalid } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import type { Mount } from '../backend.ts'
import { tokenPolicies } from './token-policies.ts'
import { hasLimitedUses, type LiveToken } from './token-record.ts'
import { decideTtl } from './ttl.ts'

/** What a caller asks of a token made from its own; the routes have checked what needs `sudo`. */
export interface TokenWish {
  /** Empty: those of the parent. */
  readonly policies: readonly string[]
  /** More policies than the parent's are fine. */
  readonly anyPolicies: boolean
  readonly noDefaultPolicy: boolean
  readonly orphan: boolean
  readonly id?: Secret
  readonly metadata: Readonly<Record<string, string>>
  readonly displayName: string
  readonly ttlMs: number
  readonly explicitMaxTtlMs: number
  readonly periodMs: number
  readonly numUses: number
  readonly renewable: boolean
}

/** What a token made from another is to be: no more than its parent unless the wish says that more is fine. Pure. */
export function decideChild(
  parent: LiveToken,
  wish: TokenWish,
  { mount, systemMaxMs }: { readonly mount: Mount; readonly systemMaxMs: number },
) {
  const { record } = parent
  if (hasLimitedUses(record)) throw invalid('a token with a limited number of uses cannot create child tokens')
  const policies = policiesOf(parent, wish)
  // Only a root token made by one that never ends may itself never end.
  const forever =
    policies.includes('root') && !record.expiresAt && !wish.ttlMs && !wish.periodMs && !wish.explicitMaxTtlMs
  const { ttlMs, warnings } = forever
    ? { ttlMs: 0, warnings: [] }
    : decideTtl({
        requestedMs: wish.ttlMs,
        explicitMaxMs: wish.explicitMaxTtlMs,
        periodMs: wish.periodMs,
        mountDefaultMs: mount.defaultLeaseTtlMs,
        mountMaxMs: mount.maxLeaseTtlMs,
        systemMaxMs,
        ageMs: 0,
      })
  const child = {
    policies,
    metadata: { ...wish.metadata },
    displayName: wish.displayName === '' ? 'token' : `token-${wish.displayName}`,
    entityId: wish.orphan ? '' : record.entityId,
    ttlMs,
    explicitMaxTtlMs: wish.explicitMaxTtlMs,
    periodMs: wish.periodMs,
    numUses: wish.numUses,
    // A token that is bound to networks makes only tokens that are.
    boundCidrs: record.boundCidrs,
    orphan: wish.orphan,
    renewable: wish.renewable && ttlMs > 0,
    ...(!wish.orphan && { parentKey: parent.key }),
    ...(!wish.orphan && record.mountId !== undefined && { mountId: record.mountId }),
  }
  return { child, warnings }
}

function policiesOf({ record }: LiveToken, wish: TokenWish): string[] {
  const isRoot = record.policies.includes('root')
  const inherited = record.policies.filter((name) => !(wish.noDefaultPolicy && name === 'default'))
  const policies = tokenPolicies(wish.policies.length > 0 ? wish.policies : inherited, {
    // `default` is added where the parent has it too, or has everything.
    noDefault: wish.noDefaultPolicy || (!isRoot && !record.policies.includes('default')),
    root: isRoot ? 'allowed' : 'refused',
    field: 'policies',
  })
  const beyond = policies.filter((name) => !record.policies.includes(name))
  if (!isRoot && !wish.anyPolicies && beyond.length > 0)
    throw invalid(`policies: child policies must be a subset of the parent's, which lacks ${beyond.join(', ')}`)
  return policies
}
