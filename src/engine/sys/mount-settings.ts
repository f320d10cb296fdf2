import { isDeepStrictEqual } from 'node:util'
import * as z from 'zod'
import { parseDurationMs } from '../../lib/duration.ts'
import { invalid } from '../../lib/errors.ts'
import type { Values } from '../../schema/answer.ts'
import { choice, duration, flag, integer, text } from '../../schema/fields.ts'
import { type WireBody, wire } from '../../schema/wire.ts'
import type { Mount } from '../backend.ts'
import { DEFAULT_LOCKOUT, type MountSettings } from '../mount/mount-table.ts'

/** The settings of a mount: as they are written when it is made and when it is tuned, and as they are read. */

/** System limits of leases and tokens. */
export const SYSTEM_TTL_MS = 768 * 3_600_000

const settings = z.object({
  defaultLeaseTtl: text(40),
  maxLeaseTtl: text(40),
  description: text(1024),
  listingVisibility: choice(['', 'hidden', 'unauth']),
  tokenType: choice(['', 'default', 'service', 'default-service']),
  lockoutThreshold: integer({ min: 1, max: 1_000_000 }),
  lockoutDuration: duration(),
  lockoutCounterReset: duration(),
  lockoutDisable: flag(),
})
const tuneFields = wire(settings)
const mountFields = wire(z.object({ type: text(64), description: text(1024), disown: flag() }))

type TuneFields = Partial<z.output<typeof settings>>

/** The body is flat, only the settings of the lock-out may stand in an object of their own. */
export const tuneBody = { ...tuneFields, parse: (given) => tuneFields.parse(flattenLockout(given)) } satisfies WireBody<
  z.output<typeof settings>
>

/** What makes a mount; its settings stand in `config`. */
export const mountBody = {
  names: [...mountFields.names, 'config'],
  parse(given: Readonly<Record<string, unknown>>) {
    const { config, ...rest } = given
    if (config !== undefined && config !== null && (typeof config !== 'object' || Array.isArray(config)))
      throw invalid('field validation failed: config: must be an object')
    const own = mountFields.parse(rest)
    const tune = tuneFields.parse(flattenLockout({ ...config }))
    return { value: { ...tune.value, ...own.value }, unknown: [] }
  },
}

/** What given fields make of the settings of a mount, or of one that is still to be made. */
export function tuned(
  mountClass: Mount['class'],
  mount: Mount | undefined,
  fields: TuneFields,
): MountSettings & { lockout?: Mount['lockout'] } {
  if (fields.tokenType !== undefined && mountClass !== 'auth')
    throw invalid('token_type is a setting of auth mounts only')
  const lockout = {
    ...(fields.lockoutThreshold !== undefined && { threshold: fields.lockoutThreshold }),
    ...(fields.lockoutDuration !== undefined && { durationMs: fields.lockoutDuration }),
    ...(fields.lockoutCounterReset !== undefined && { counterResetMs: fields.lockoutCounterReset }),
    ...(fields.lockoutDisable !== undefined && { disabled: fields.lockoutDisable }),
  }
  return {
    ...(fields.description !== undefined && { description: fields.description }),
    ...(fields.listingVisibility !== undefined && { listingVisibility: fields.listingVisibility }),
    ...(fields.tokenType !== undefined && {
      tokenType: fields.tokenType === 'service' ? 'service' : 'default-service',
    }),
    ...(fields.defaultLeaseTtl !== undefined && {
      defaultLeaseTtlMs: ttl(fields.defaultLeaseTtl, 'default_lease_ttl'),
    }),
    ...(fields.maxLeaseTtl !== undefined && { maxLeaseTtlMs: ttl(fields.maxLeaseTtl, 'max_lease_ttl') }),
    ...(Object.keys(lockout).length > 0 && { lockout: { ...(mount?.lockout ?? DEFAULT_LOCKOUT), ...lockout } }),
  }
}

/** A mount as it stands in lists. */
export function describe(mount: Mount): Values {
  return {
    type: mount.type,
    description: mount.description,
    accessor: mount.accessor,
    uuid: mount.id,
    config: {
      default_lease_ttl: mount.defaultLeaseTtlMs / 1000,
      max_lease_ttl: mount.maxLeaseTtlMs / 1000,
      force_no_cache: false,
      ...(mount.listingVisibility && { listing_visibility: mount.listingVisibility }),
      ...(mount.class === 'auth' && { token_type: mount.tokenType ?? 'default-service' }),
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

/** The settings of a mount as `tune` tells them. */
export function tuning(mount: Mount): Values {
  return {
    default_lease_ttl: (mount.defaultLeaseTtlMs || SYSTEM_TTL_MS) / 1000,
    max_lease_ttl: (mount.maxLeaseTtlMs || SYSTEM_TTL_MS) / 1000,
    description: mount.description,
    force_no_cache: false,
    ...(mount.listingVisibility && { listing_visibility: mount.listingVisibility }),
    ...(mount.class === 'auth' && {
      token_type: mount.tokenType ?? 'default-service',
      user_lockout_config: {
        lockout_threshold: mount.lockout.threshold,
        lockout_duration: mount.lockout.durationMs / 1000,
        lockout_counter_reset: mount.lockout.counterResetMs / 1000,
        lockout_disable: mount.lockout.disabled,
      },
    }),
  }
}

/** A mount of the first start that nobody has given a setting since. */
export function isUntouched(mount: Mount): boolean {
  return (
    mount.isDefault === true &&
    mount.owner === undefined &&
    mount.description === '' &&
    mount.defaultLeaseTtlMs === 0 &&
    mount.maxLeaseTtlMs === 0 &&
    (mount.listingVisibility ?? '') === '' &&
    mount.tokenType !== 'service' &&
    isDeepStrictEqual(mount.lockout, DEFAULT_LOCKOUT)
  )
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
