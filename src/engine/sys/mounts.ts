import * as z from 'zod'
import { parseDurationMs } from '../../lib/duration.ts'
import { invalid, notFound } from '../../lib/errors.ts'
import { duration, flag, integer, text } from '../../schema/fields.ts'
import { wire } from '../../schema/wire.ts'
import { type Call, type Caller, type Mount, type Reply, type Route, route } from '../backend.ts'
import type { MountSettings, MountTable } from '../mount/mount-table.ts'
import type { Values } from '../request.ts'
import { requireWritable } from '../tenancy/owner.ts'

/** `sys/mounts` and `sys/auth`: what stands where (CONTRACT 5.3). The same code serves both; auth mounts live below `auth/`. */

/** System limits of leases and tokens (CONTRACT 3.3). */
export const SYSTEM_TTL_MS = 768 * 3_600_000

const settings = z.object({
  defaultLeaseTtl: text(40),
  maxLeaseTtl: text(40),
  description: text(1024),
  lockoutThreshold: integer({ min: 1, max: 1_000_000 }),
  lockoutDuration: duration(),
  lockoutCounterReset: duration(),
  lockoutDisable: flag(),
})
const tuneFields = wire(settings)
const mountFields = wire(z.object({ type: text(64), description: text(1024), disown: flag() }))

type TuneFields = Partial<z.output<typeof settings>>

export function mountRoutes(mounts: () => MountTable): Route[] {
  return [...routesOf('secret', mounts), ...routesOf('auth', mounts), ...interfaceRoutes(mounts)]
}

function routesOf(kind: 'secret' | 'auth', table: () => MountTable): Route[] {
  const base = kind === 'auth' ? 'auth' : 'mounts'
  const sudo = kind === 'auth'
  const fullPath = (name: string) => `${kind === 'auth' ? 'auth/' : ''}${withoutSlash(name)}/`
  const shown = (mount: Mount) => (kind === 'auth' ? mount.path.slice('auth/'.length) : mount.path)
  const mine = (mount: Mount) => (mount.class === 'auth') === (kind === 'auth')

  const list = async ({ caller }: Pick<Call, 'caller'>): Promise<Reply> => {
    const all = (await table().all()).filter(mine)
    const rows = all.map((mount) => [shown(mount), { ...describe(mount), ...owned(mount, caller) }])
    return { shape: 'flat', data: Object.fromEntries(rows) }
  }
  const find = async (call: Call<unknown>) => table().at(fullPath(call.params['path'] ?? ''))
  const require = async (call: Call<unknown>) => {
    const mount = await find(call)
    if (!mount) throw invalid(`no mount at ${fullPath(call.params['path'] ?? '')}`)
    return mount
  }

  return [
    route({ pattern: base, read: list, list }),
    route({
      pattern: `${base}/:path+/tune`,
      sameName: withoutSlash,
      sudo,
      // `config`-style nesting is peers'; the tune body is flat, lock-out settings stand in an object of their own.
      body: { ...tuneFields, parse: (given) => tuneFields.parse(flattenLockout(given)) },
      async read(call) {
        return { shape: 'flat', data: tuning(await require(call)) }
      },
      async write(call) {
        const mount = await require(call)
        requireWritable(mount.owner, call.caller, `the mount ${mount.path}`)
        await table().tune(mount.id, tuned(mount, call.fields))
        return undefined
      },
    }),
    route({
      pattern: `${base}/:path+`,
      sameName: withoutSlash,
      sudo,
      body: {
        names: [...mountFields.names, 'config'],
        parse(given) {
          const { config, ...rest } = given
          if (config !== undefined && config !== null && (typeof config !== 'object' || Array.isArray(config)))
            throw invalid('field validation failed: config: must be an object')
          const own = mountFields.parse(rest)
          const tune = tuneFields.parse(flattenLockout({ ...config }))
          return { value: { ...tune.value, ...own.value }, unknown: [] }
        },
      },
      async read(call) {
        const mount = await require(call)
        return { shape: 'flat', data: describe(mount) }
      },
      async write(call) {
        if (call.fields.disown) {
          if (!call.caller.isController) throw invalid('disown: only the controller may set it')
          const owned = await require(call)
          requireWritable(owned.owner, call.caller, `the mount ${owned.path}`)
          await table().disown(owned.id)
          return undefined
        }
        const type = synonym(call.fields.type ?? '')
        if (type === '') throw invalid('type is required')
        const path = fullPath(call.params['path'] ?? '')
        const existing = await table().at(path)
        const owner = call.caller.owner
        const wanted = tuned(existing, call.fields)
        // The mounts of the first start may be enabled as if they were not there; a resource takes its own or an unowned one over.
        if (existing && mine(existing) && existing.type === type && (owner !== undefined || isUntouched(existing))) {
          requireWritable(existing.owner, call.caller, `the mount ${path}`)
          await table().tune(existing.id, { ...wanted, ...(owner !== undefined && { owner }) })
        } else {
          await table().add({ class: kind, type, path, ...wanted, ...(owner !== undefined && { owner }) })
        }
        return undefined
      },
      async delete(call) {
        const mount = await find(call)
        if (!mount) return undefined
        // Only there `sudo` is asked for.
        if (!mine(mount)) throw invalid(`the mount ${mount.path} can only be removed at sys/auth`)
        requireWritable(mount.owner, call.caller, `the mount ${mount.path}`)
        if (mount.class === 'system' || mount.type === 'token')
          throw invalid(`the mount ${mount.path} cannot be removed`)
        await table().backendOf(mount).unmount?.(mount, call.signal)
        await table().remove(mount)
        return undefined
      },
    }),
  ]
}

/** `sys/internal/ui/mounts`: what command lines ask before they guess at a path. */
function interfaceRoutes(table: () => MountTable): Route[] {
  return [
    route({
      pattern: 'internal/ui/mounts/:path+',
      async read(call) {
        const wanted = `${(call.params['path'] ?? '').replace(/\/+$/, '')}/`
        const mount = (await table().all()).find((m) => wanted.startsWith(m.path))
        if (!mount) throw notFound(`no mount at ${wanted}`)
        return { shape: 'envelope', data: { ...describe(mount), path: mount.path } }
      },
    }),
    route({
      pattern: 'internal/ui/mounts',
      async read() {
        const all = await table().all()
        const entries = (auth: boolean) =>
          Object.fromEntries(
            all
              .filter((mount) => (mount.class === 'auth') === auth)
              .map((mount) => [auth ? mount.path.slice('auth/'.length) : mount.path, describe(mount)]),
          )
        return { shape: 'envelope', data: { auth: entries(true), secret: entries(false) } }
      },
    }),
  ]
}

/** Whose it is, for the controller. */
function owned({ owner }: Mount, { isController }: Caller): Values {
  return isController && owner !== undefined ? { owner } : {}
}

function describe(mount: Mount): Values {
  return {
    type: mount.type,
    description: mount.description,
    accessor: mount.accessor,
    uuid: mount.id,
    config: {
      default_lease_ttl: mount.defaultLeaseTtlMs / 1000,
      max_lease_ttl: mount.maxLeaseTtlMs / 1000,
      force_no_cache: false,
      ...(mount.class === 'auth' && { token_type: 'default-service' }),
    },
    local: false,
    seal_wrap: false,
    external_entropy_access: false,
    options: null,
    plugin_version: '',
    running_plugin_version: '',
    running_sha256: '',
    deprecation_status: 'supported',
  }
}

function tuning(mount: Mount): Values {
  return {
    default_lease_ttl: (mount.defaultLeaseTtlMs || SYSTEM_TTL_MS) / 1000,
    max_lease_ttl: (mount.maxLeaseTtlMs || SYSTEM_TTL_MS) / 1000,
    description: mount.description,
    force_no_cache: false,
    ...(mount.class === 'auth' && {
      token_type: 'default-service',
      user_lockout_config: {
        lockout_threshold: mount.lockout.threshold,
        lockout_duration: mount.lockout.durationMs / 1000,
        lockout_counter_reset: mount.lockout.counterResetMs / 1000,
        lockout_disable: mount.lockout.disabled,
      },
    }),
  }
}

function tuned(mount: Mount | undefined, fields: TuneFields): MountSettings & { lockout?: Mount['lockout'] } {
  const lockout = {
    ...(fields.lockoutThreshold !== undefined && { threshold: fields.lockoutThreshold }),
    ...(fields.lockoutDuration !== undefined && { durationMs: fields.lockoutDuration }),
    ...(fields.lockoutCounterReset !== undefined && { counterResetMs: fields.lockoutCounterReset }),
    ...(fields.lockoutDisable !== undefined && { disabled: fields.lockoutDisable }),
  }
  const known = mount?.lockout ?? { threshold: 5, durationMs: 900_000, counterResetMs: 900_000, disabled: false }
  return {
    ...(fields.description !== undefined && { description: fields.description }),
    ...(fields.defaultLeaseTtl !== undefined && {
      defaultLeaseTtlMs: ttl(fields.defaultLeaseTtl, 'default_lease_ttl'),
    }),
    ...(fields.maxLeaseTtl !== undefined && { maxLeaseTtlMs: ttl(fields.maxLeaseTtl, 'max_lease_ttl') }),
    ...(Object.keys(lockout).length > 0 && { lockout: { ...known, ...lockout } }),
  }
}

/** `"system"` means: back to the system's, as 0 does. */
function ttl(value: string, field: string): number {
  if (value === 'system') return 0
  const ms = parseDurationMs(value, field)
  if (ms > SYSTEM_TTL_MS) throw invalid(`${field} must be at most ${SYSTEM_TTL_MS / 3_600_000}h`)
  return ms
}

function flattenLockout(given: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { user_lockout_config: lockout, ...rest } = given
  if (lockout === undefined || lockout === null) return rest
  if (typeof lockout !== 'object' || Array.isArray(lockout))
    throw invalid('field validation failed: user_lockout_config: must be an object')
  return { ...rest, ...lockout }
}

function withoutSlash(path: string): string {
  return path.replace(/\/+$/, '')
}

function isUntouched(mount: Mount): boolean {
  return (
    mount.owner === undefined && mount.description === '' && mount.defaultLeaseTtlMs === 0 && mount.maxLeaseTtlMs === 0
  )
}

function synonym(type: string): string {
  return type === 'openldap' ? 'ldap' : type
}
