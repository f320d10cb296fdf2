import type { Condition } from '../schema/conditions.ts'

const SOONEST_MS = 3_000
const LATEST_MS = 60_000

/**
 * When to look again at what somebody else must clear away, such as a Secret of our name, since nobody tells us: every 3 s at first, then
 * after a tenth of the time that it has lasted, and each minute in the end. How long it has lasted stands in the conditions as they were.
 */
export function blockedUntil(type: string, before: readonly Condition[] | undefined, now: Date): Date {
  const since = before?.find((condition) => condition.type === type && condition.status === 'False')?.lastTransitionTime
  const lastedMs = since === undefined ? 0 : now.getTime() - Date.parse(since)
  return new Date(now.getTime() + Math.min(LATEST_MS, Math.max(SOONEST_MS, lastedMs / 10)))
}
