import { normalizePolicies } from '../../../schema/token-fields.ts'
import type { Mount } from '../../backend.ts'
import type { Store } from '../../storage/store.ts'
import type { Effective } from './effective.ts'
import { nameKey } from './names.ts'
import { groupKind, userKind } from './records.ts'

/**
 * Policies of a login: of the mapped user, under each of her `names`, and of each of her groups, those of the directory and the local ones of the
 * mappings.
 */
export async function policiesOf(
  store: Store,
  mount: Mount,
  now: Effective,
  names: readonly string[],
  groups: readonly string[],
): Promise<string[]> {
  const keysOf = (some: readonly string[]) => [...new Set(some.map((name) => `${mount.id}/${nameKey(name, now)}`))]
  const users = await Promise.all(keysOf(names).map(async (key) => (await store.read(userKind, key))?.value))
  const local = users.flatMap((user) => user?.groups ?? [])
  const mapped = await Promise.all(keysOf([...groups, ...local]).map((key) => store.read(groupKind, key)))
  return normalizePolicies([
    ...now.token.policies,
    ...users.flatMap((user) => user?.policies ?? []),
    ...mapped.flatMap((group) => group?.value.policies ?? []),
  ])
}
