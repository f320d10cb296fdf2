import { VersionConflict } from '../../storage/driver.ts'
import { type Change, put, remove, type Store } from '../../storage/store.ts'
import { tenantKind } from './records.ts'

/**
 * The change that counts one role more or less for a tenant; none without a tenant. `check` is asked with the number before, and the
 * commit fails with `VersionConflict` when that is not the number any more.
 */
export async function countTenantRole(
  store: Store,
  mountId: string,
  principal: string | undefined,
  by: 1 | -1,
  check?: (before: number) => void,
): Promise<Change[]> {
  if (principal === undefined) return []
  const key = `${mountId}/${principal}`
  const stored = await store.read(tenantKind, key)
  const before = stored?.value.staticRoles ?? 0
  check?.(before)
  const staticRoles = Math.max(before + by, 0)
  if (staticRoles === 0) return stored ? [remove(tenantKind, key, { expected: stored.version })] : []
  return [put(tenantKind, key, { staticRoles }, { expected: stored?.version ?? 0 })]
}

/** Tries a commit again as long as only the tenant's count was changed by somebody else. */
export async function withTenantRetry(commit: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await commit()
    } catch (error) {
      if (!(error instanceof VersionConflict) || !error.key.startsWith(tenantKind.prefix)) throw error
    }
  }
}
