import type { Fields } from '../client/transport.ts'
import type { LdapEngineSpec, TenancyEntry } from '../schema/ldap-engine.ts'
import type { Namespaces } from '../schema/references.ts'

/*
 * From the tenancy of an LdapEngine to the table that the engine enforces. Selectors are resolved to namespaces here, because the engine
 * knows no labels; only namespaces that hold objects are asked for, and an entry that nobody matches is left out.
 */

/** Labels of the namespaces that matter. */
export type NamespaceLabels = ReadonlyMap<string, Readonly<Record<string, string>>>

// The engine takes lists of at most a thousand.
const PRINCIPALS_LIMIT = 1000

/** The body of `sys/tenancy/<mount>`. */
export function tenancyTable(spec: Pick<LdapEngineSpec, 'tenancy'>, labels: NamespaceLabels): { entries: Fields[] } {
  return { entries: (spec.tenancy ?? []).flatMap((entry) => rows(entry, labels)) }
}

/** Whether an entry is for this namespace and kind, whatever it allows. */
export function admits(
  { tenancy = [] }: Pick<LdapEngineSpec, 'tenancy'>,
  kind: TenancyEntry['kinds'][number],
  namespace: string,
  labels: Readonly<Record<string, string>>,
): boolean {
  return tenancy.some(
    ({ kinds, namespaces: { names, selector } }) =>
      kinds.includes(kind) && (names?.includes(namespace) || selects(selector, labels)),
  )
}

function rows(entry: TenancyEntry, labels: NamespaceLabels): Fields[] {
  const matched = [...labels].filter(([, own]) => selects(entry.namespaces.selector, own)).map(([name]) => name)
  const principals = [...new Set([...(entry.namespaces.names ?? []), ...matched])]
    .sort()
    .map((name) => `kubernetes:${name}`)
  const chunks = Array.from({ length: Math.ceil(principals.length / PRINCIPALS_LIMIT) }, (_, at) =>
    principals.slice(at * PRINCIPALS_LIMIT, (at + 1) * PRINCIPALS_LIMIT),
  )
  return chunks.map((chunk) => ({
    principals: chunk,
    kinds: entry.kinds,
    allowed_dns: entry.allowedDNs,
    allowed_group_dns: entry.allowedGroupDNs ?? [],
    denied_dns: entry.deniedDNs ?? [],
    min_rotation_period: (entry.minRotationPeriod ?? 0) / 1000,
    max_ttl: (entry.maxTTL ?? 0) / 1000,
    max_roles: entry.maxRoles ?? 0,
    free_role_names: entry.freeRoleNames ?? false,
  }))
}

/**
 * Whether labels satisfy a selector. No selector, one without requirements, and one with a requirement that is no whole one selects nothing:
 * an omission must not open a door.
 */
export function selects(selector: Namespaces['selector'], labels: Readonly<Record<string, string>>): boolean {
  const wanted = Object.entries(selector?.matchLabels ?? {})
  const expressions = selector?.matchExpressions ?? []
  if (wanted.length === 0 && expressions.length === 0) return false
  return (
    wanted.every(([name, value]) => labels[name] === value) &&
    expressions.every(({ key, operator, values = [] }) => {
      const value = labels[key]
      switch (operator) {
        case 'In':
          return value !== undefined && values.includes(value)
        case 'NotIn':
          return values.length > 0 && (value === undefined || !values.includes(value))
        case 'Exists':
          return value !== undefined && values.length === 0
        case 'DoesNotExist':
          return value === undefined && values.length === 0
        default:
          return operator satisfies never
      }
    })
  )
}
