import { invalid } from '../../lib/errors.ts'

/** What bears on how long a token or lease lives. Milliseconds; 0 is unset. */
export interface TtlInputs {
  readonly requestedMs?: number
  readonly roleTtlMs?: number
  readonly roleMaxMs?: number
  readonly explicitMaxMs?: number
  readonly periodMs?: number
  readonly mountDefaultMs: number
  readonly mountMaxMs: number
  readonly systemMaxMs: number
  /** Time since issue; 0 at issue. */
  readonly ageMs: number
}

/** The life from now on, at issue and at renewal; `invalid` when the maximum is behind. Pure. */
export function decideTtl(inputs: TtlInputs): { readonly ttlMs: number; readonly warnings: readonly string[] } {
  const { requestedMs = 0, roleTtlMs = 0, roleMaxMs = 0, explicitMaxMs = 0, periodMs = 0, ageMs } = inputs
  const mountMax = least(inputs.mountMaxMs, inputs.systemMaxMs)
  if (periodMs > 0) {
    const warnings: string[] = []
    if (periodMs > mountMax)
      warnings.push(
        `period of ${seconds(periodMs)} exceeded the mount's maximum of ${seconds(mountMax)} and was capped`,
      )
    const wanted = Math.min(periodMs, mountMax)
    // A periodic token lives as long as it is renewed, but for an explicit maximum.
    return explicitMaxMs > 0 ? capped(wanted, explicitMaxMs, ageMs, warnings) : { ttlMs: wanted, warnings }
  }
  const max = least(mountMax, roleMaxMs, explicitMaxMs)
  return capped(requestedMs || roleTtlMs || inputs.mountDefaultMs || inputs.systemMaxMs, max, ageMs, [])
}

function capped(wantedMs: number, maxMs: number, ageMs: number, warnings: readonly string[]) {
  const left = maxMs - ageMs
  if (left <= 0) throw invalid('past the max TTL, cannot renew')
  if (wantedMs <= left) return { ttlMs: wantedMs, warnings }
  const warning = `TTL of ${seconds(wantedMs)} exceeded the effective maximum of ${seconds(maxMs)} and was capped`
  return { ttlMs: left, warnings: [...warnings, warning] }
}

function least(...limits: readonly number[]): number {
  return Math.min(...limits.filter((limit) => limit > 0))
}

function seconds(ms: number): string {
  return `${ms / 1000}s`
}
