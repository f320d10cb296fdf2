import { normalizePolicies } from '../../../schema/token-fields.ts'
import type { Mount } from '../../backend.ts'
import type { Store } from '../../storage/store.ts'
import { type Effective, nameKey } from './effective.ts'
import { groupKind, userKind } from './records.ts'

/** Policies of a login: of the mapped user, and of each of her groups, those of the directory and the local ones of the mapping. */
export async function policiesOf(
  store: Store,
  mount: Mount,
  now: Effective,
  username: string,
  groups: readonly string[],
): Promise<string[]> {
  const user = (await store.read(userKind, `${mount.id}/${nameKey(username, now)}`))?.value
  const names = new Set([...groups, ...(user?.groups ?? [])].map((name) => nameKey(name, now)))
  const mapped = await Promise.all([...names].map((name) => store.read(groupKind, `${mount.id}/${name}`)))
  return normalizePolicies([
    ...now.token.policies,
    ...(user?.policies ?? []),
    ...mapped.flatMap((group) => group?.value.policies ?? []),
  ])
}
