import * as z from 'zod'
import { invalid } from '../../lib/errors.ts'
import { duration, flag, integer, names } from '../../schema/fields.ts'
import { type WireBody, wire } from '../../schema/wire.ts'
import { isDn } from '../directory/dn.ts'
import { type Change, put, recordKind, remove, type Store } from '../storage/store.ts'

/**
 * Who may use a mount, by tenant (`sys/tenancy/<mount>`). The table is kept and enforced in the engine, so that nothing outside it can
 * forget to ask. Default deny: a tenant that no entry names may do nothing. Callers without a principal are not tenants; their
 * policies alone decide. `enforce.ts` holds the decisions.
 */
const TENANT_KINDS = ['StaticRole', 'DynamicRole', 'LibrarySet'] as const
export type TenantKind = (typeof TENANT_KINDS)[number]

const entryCodec = z.object({
  /** `kubernetes:<namespace>`. */
  principals: z.array(z.string()),
  kinds: z.array(z.enum(TENANT_KINDS)),
  /** Bases below which the tenant's entries must lie. */
  allowedDns: z.array(z.string()),
  /** Groups that its LDIF may change. */
  allowedGroupDns: z.array(z.string()),
  /** Always win. */
  deniedDns: z.array(z.string()),
  /** 0: no lower bound, no limit. */
  minRotationPeriodMs: z.number(),
  maxTtlMs: z.number(),
  maxRoles: z.int(),
  freeRoleNames: z.boolean(),
})
export type TenancyEntry = z.output<typeof entryCodec>
export interface TenancyTable {
  readonly entries: readonly TenancyEntry[]
}

const tenancyKind = recordKind('tenancy/', z.object({ entries: z.array(entryCodec) }))

/** The table of a mount; a mount without one lets no tenant in. */
export async function readTenancy(store: Store, mountId: string): Promise<TenancyTable> {
  return (await store.read(tenancyKind, mountId))?.value ?? { entries: [] }
}

export function writeTenancy(mountId: string, table: TenancyTable): Change {
  return put(tenancyKind, mountId, { entries: [...table.entries] }, { expected: 'any' })
}

export function forgetTenancy(mountId: string): Change {
  return remove(tenancyKind, mountId, { expected: 'any' })
}

const entryBody = wire(
  z.object({
    principals: names(300),
    kinds: names(32),
    allowedDns: names(1024),
    allowedGroupDns: names(1024),
    deniedDns: names(1024),
    minRotationPeriod: duration(),
    maxTtl: duration(),
    maxRoles: integer({ min: 0, max: 1_000_000 }),
    freeRoleNames: flag(),
  }),
)
const ENTRY_LIMIT = 1000

/** Body of `sys/tenancy/<mount>`: `{ "entries": [ … ] }`, which replaces the table as a whole. */
export const tenancyBody: WireBody<{ entries: TenancyEntry[] }> = {
  names: ['entries'],
  parse(given) {
    const { entries, ...rest } = given
    if (entries === undefined || entries === null) return { value: {}, unknown: Object.keys(rest) }
    if (!Array.isArray(entries) || entries.length > ENTRY_LIMIT)
      throw invalid(`field validation failed: entries: must be a list of at most ${ENTRY_LIMIT} entries`)
    return { value: { entries: entries.map(parseEntry) }, unknown: Object.keys(rest) }
  },
}

function parseEntry(given: unknown, index: number): TenancyEntry {
  const at = `entries[${index}]`
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw invalid(`${at} must be an object`)
  const fields = Object.fromEntries(Object.entries(given))
  for (const name of ['allowed_dns', 'allowed_group_dns', 'denied_dns']) {
    // A list of DNs as one text would be split at the commas inside them, and each piece would allow far more than was meant.
    const value = fields[name]
    if (value !== undefined && value !== null && !Array.isArray(value))
      throw invalid(`${at}.${name} must be a list of DNs`)
  }
  const { value, unknown } = entryBody.parse(fields)
  // A misspelt restriction must not be dropped silently.
  if (unknown.length > 0) throw invalid(`${at}: unknown field ${unknown.join(', ')}`)
  const principals = value.principals ?? []
  if (principals.length === 0) throw invalid(`${at}.principals must name at least one tenant`)
  for (const principal of principals)
    if (!/^kubernetes:[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(principal))
      throw invalid(`${at}.principals: "${principal}" must be kubernetes:<namespace>`)
  return {
    principals,
    kinds: (value.kinds ?? []).map((word) => {
      const kind = TENANT_KINDS.find((known) => known === word)
      if (!kind) throw invalid(`${at}.kinds: "${word}" must be one of ${TENANT_KINDS.join(', ')}`)
      return kind
    }),
    allowedDns: requireDns(value.allowedDns, `${at}.allowed_dns`),
    allowedGroupDns: requireDns(value.allowedGroupDns, `${at}.allowed_group_dns`),
    deniedDns: requireDns(value.deniedDns, `${at}.denied_dns`),
    minRotationPeriodMs: value.minRotationPeriod ?? 0,
    maxTtlMs: value.maxTtl ?? 0,
    maxRoles: value.maxRoles ?? 0,
    freeRoleNames: value.freeRoleNames ?? false,
  }
}

function requireDns(dns: readonly string[] = [], field: string): string[] {
  return dns.map((dn) => {
    // The empty DN is above everything: a slip there would allow the whole directory.
    if (dn.trim() === '' || !isDn(dn)) throw invalid(`${field}: "${dn}" is not a DN`)
    return dn
  })
}

/** The table as `sys/tenancy/<mount>` returns it. Durations in seconds. */
export function tenancyValues({ entries }: TenancyTable) {
  return {
    entries: entries.map((entry) => ({
      principals: entry.principals,
      kinds: entry.kinds,
      allowed_dns: entry.allowedDns,
      allowed_group_dns: entry.allowedGroupDns,
      denied_dns: entry.deniedDns,
      min_rotation_period: entry.minRotationPeriodMs / 1000,
      max_ttl: entry.maxTtlMs / 1000,
      max_roles: entry.maxRoles,
      free_role_names: entry.freeRoleNames,
    })),
  }
}
