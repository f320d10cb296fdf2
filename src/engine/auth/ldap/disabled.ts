import type { Entry } from '../../directory/directory.ts'

/** What tells that a directory would refuse an account's bind whatever its password. */
export const STATUS_ATTRIBUTES = ['userAccountControl', 'accountExpires', 'pwdAccountLockedTime', 'nsAccountLock']

/** MS-ADTS 2.2.16. */
const ACCOUNTDISABLE = 2
/** Active Directory counts in 100 ns since 1601; 0 and the largest number mean never. */
const EPOCH_1601_MS = Date.UTC(1601, 0, 1)
const NEVER = new Set(['0', '9223372036854775807'])

/**
 * Whether an account is disabled, locked or expired: Active Directory, the password policy of OpenLDAP, and the 389 Directory Server and
 * its kin. A lock-out that has run out may still stand in OpenLDAP until the next bind, which is what logging in again is.
 */
export function isDisabled(entry: Entry | undefined, now: Date): boolean {
  if (!entry) return false
  if ((Number(entry.first('userAccountControl') ?? 0) & ACCOUNTDISABLE) !== 0) return true
  const expires = entry.first('accountExpires') ?? '0'
  if (!NEVER.has(expires) && EPOCH_1601_MS + Number(expires) / 10_000 <= now.getTime()) return true
  return entry.first('pwdAccountLockedTime') !== undefined || /^true$/i.test(entry.first('nsAccountLock') ?? '')
}
