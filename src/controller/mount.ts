import type { Fields } from '../client/transport.ts'
import { type As, type EngineAccess, textOf } from './access.ts'
import { no, type Statement } from './conditions.ts'
import type { ReconcilerDeps } from './reconcile.ts'

/** A mount as it shall be. */
export interface WantedMount {
  /** `mounts` or `auth`. */
  readonly table: 'mounts' | 'auth'
  readonly path: string
  readonly description: string
  readonly defaultLeaseTtlMs: number
  readonly maxLeaseTtlMs: number
  readonly lockout?: Fields
}

/**
 * Makes sure that the mount is there, of type ldap and ours. It is written when absent, not yet taken (`knownAccessor`), or otherwise than
 * declared. One whose resource is gone, with no chance to let it go, is let go now. Returns its accessor.
 */
export async function ensureMount(
  { engine, isGone }: Pick<ReconcilerDeps, 'engine' | 'isGone'>,
  as: As,
  wanted: WantedMount,
  knownAccessor: string | undefined,
  claim: () => Promise<void>,
): Promise<{ readonly accessor: string } | { readonly statement: Statement }> {
  const seen = await findMount(engine, as, wanted)
  if (seen && seen.type !== 'ldap')
    return { statement: no('Synced', 'Refused', `The path ${wanted.path} belongs to a mount of type ${seen.type}.`) }
  await claim()
  if (seen && seen.owner !== as.owner && isGone(seen.owner)) await disownMount(engine, wanted, { owner: seen.owner })
  const config = {
    default_lease_ttl: String(wanted.defaultLeaseTtlMs / 1000),
    max_lease_ttl: String(wanted.maxLeaseTtlMs / 1000),
  }
  const isSame =
    seen !== undefined &&
    seen.accessor === knownAccessor &&
    seen.description === wanted.description &&
    seen.defaultLeaseTtl === wanted.defaultLeaseTtlMs / 1000 &&
    seen.maxLeaseTtl === wanted.maxLeaseTtlMs / 1000
  if (!isSame) {
    const body = { type: 'ldap', description: wanted.description, config }
    await engine.write(`sys/${wanted.table}/${wanted.path}`, body, as)
  }
  if (wanted.lockout) await ensureLockout(engine, as, wanted.path, wanted.lockout)
  const accessor = seen?.accessor ?? (await findMount(engine, as, wanted))?.accessor
  return accessor === undefined
    ? { statement: no('Synced', 'EngineUnavailable', 'The mount is not there right after it was written.') }
    : { accessor }
}

/** Leaves a mount and its configuration to everybody, as far as they belong to whoever asks. */
export async function disownMount(
  engine: EngineAccess,
  { table, path }: Pick<WantedMount, 'table' | 'path'>,
  as: As,
): Promise<void> {
  const config = `${table === 'auth' ? 'auth/' : ''}${path}/config`
  if ((await engine.read(config, as))?.['owner'] === as.owner) await engine.write(config, { disown: true }, as)
  await engine.write(`sys/${table}/${path}`, { disown: true }, as)
}

interface SeenMount {
  /** Empty when it belongs to nobody. */
  readonly owner: string
  readonly type: string
  readonly accessor: string
  readonly description: string
  readonly defaultLeaseTtl: number
  readonly maxLeaseTtl: number
}

async function findMount(engine: EngineAccess, as: As, { table, path }: WantedMount): Promise<SeenMount | undefined> {
  const all = await engine.read(`sys/${table}`, as)
  const found: unknown = all?.[`${path}/`]
  if (typeof found !== 'object' || found === null) return undefined
  const values: Record<string, unknown> = { ...found }
  const config: Record<string, unknown> = { ...(values['config'] as object) }
  return {
    owner: textOf(values, 'owner'),
    type: textOf(values, 'type'),
    accessor: textOf(values, 'accessor'),
    description: textOf(values, 'description'),
    defaultLeaseTtl: Number(config['default_lease_ttl']),
    maxLeaseTtl: Number(config['max_lease_ttl']),
  }
}

async function ensureLockout(engine: EngineAccess, as: As, path: string, wanted: Fields): Promise<void> {
  const tune = await engine.read(`sys/auth/${path}/tune`, as)
  const seen: Record<string, unknown> = { ...(tune?.['user_lockout_config'] as object) }
  if (Object.entries(wanted).every(([name, value]) => seen[name] === value)) return
  await engine.write(`sys/auth/${path}/tune`, { user_lockout_config: wanted }, as)
}
