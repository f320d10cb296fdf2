import type { AppError } from '../../lib/errors.ts'
import { type DirectoryError, isDirectoryError } from '../directory/errors.ts'

// A server that answers "busy" (51) or "unavailable" (52) did nothing, and says so of itself, not of one entry.
const BUSY = 51
const SERVER_TROUBLE = new Set([BUSY, 52])

/**
 * What a failure says about the directory as a whole. `bind-refused`: our own bind; `unreachable`: nobody is served; `answered`: it works, and
 * refused this one thing; `undefined`: nothing can be told.
 */
export function troubleOf(error: unknown): 'bind-refused' | 'unreachable' | 'answered' | undefined {
  if (!isDirectoryError(error)) return undefined
  switch (error.class) {
    case 'bind-refused':
      return 'bind-refused'
    case 'unavailable':
      return error.resultCode === undefined || SERVER_TROUBLE.has(error.resultCode) ? 'unreachable' : undefined
    case 'rejected':
    case 'absent':
    case 'refused':
      return 'answered'
    case 'unknown-outcome':
      return undefined
    default:
      return error.class satisfies never
  }
}

// With these a proxy before the directory (slapd's back-ldap, a balancer) tells that its own wait was over, or that it lost a connection on
// which the request had gone out. Codes that RFC 4511 does not have promise nothing either.
const UNSURE = new Set([11, 52])
const LAST_KNOWN_CODE = 71

function isUnsure({ resultCode = 0 }: DirectoryError): boolean {
  return UNSURE.has(resultCode) || resultCode > LAST_KNOWN_CODE
}

/** What became of a modify that ended with this error. */
export function fateOf(error: unknown): 'refused' | 'not-done' | 'unknown' {
  if (!isDirectoryError(error)) return 'unknown'
  switch (error.class) {
    case 'rejected':
    case 'absent':
    case 'refused':
      return isUnsure(error) ? 'unknown' : 'refused'
    case 'unavailable':
    case 'bind-refused':
      // Of this class only "busy" promises that nothing was written; without a code nothing was sent.
      return error.resultCode === undefined || error.resultCode === BUSY ? 'not-done' : 'unknown'
    case 'unknown-outcome':
      return 'unknown'
    default:
      return error.class satisfies never
  }
}

/** The class under which a failure is recorded and told: that of the directory door, or the reason of another refusal. */
export function failureClassOf(error: AppError): string {
  return isDirectoryError(error) ? error.class : (error.reason ?? error.kind)
}
