import type { Clock } from '../../lib/clock.ts'
import { invalid } from '../../lib/errors.ts'
import { systemRandom } from '../../lib/random.ts'
import type { Secret } from '../../lib/secret.ts'
import { openedGuard } from '../account/guard.ts'
import { configKind as loginConfigKind } from '../auth/ldap/records.ts'
import { MountTable } from '../mount/mount-table.ts'
import { openFileSeal } from '../seal/file-seal.ts'
import { configKind as engineConfigKind } from '../secrets/ldap/records.ts'
import { restoreSnapshot } from '../storage/restore.ts'
import { type Change, put, type RecordKind, type Store } from '../storage/store.ts'

/** The password that a mount binds with now, where it has turned since the backup was taken. */
export interface BindPassword {
  /** With trailing slash: `ldap/`, `auth/ldap/`. */
  readonly mount: string
  readonly password: Secret
}

/**
 * `keyturn restore FILE --data DIR`: lays a backup where no store is yet. `sealKeyFile` must hold the key of the store that was backed
 * up. The next start proves every account before it serves a password. Throws `invalid` and changes nothing when it cannot.
 */
export async function restore(
  options: { file: string; data: string; sealKeyFile: string; bindPasswords?: readonly BindPassword[] },
  { clock, print }: { clock: Clock; print: (line: string) => void },
): Promise<void> {
  const { file: snapshot, data: location, bindPasswords = [] } = options
  const seal = openFileSeal(options.sealKeyFile)
  const amend = (store: Store) => bindChanges(store, bindPasswords)
  const restored = await restoreSnapshot({ snapshot, location, seal, clock, amend })
  print(`Restored ${snapshot} to ${restored}.`)
  for (const { mount } of bindPasswords) print(`The mount ${mount} binds with the password that was given.`)
  print(
    'At its next start the server proves every password by a bind before it serves it, and rotates those that no longer work.',
  )
}

/** The given passwords in the mounts' stored configurations; what an old password closed is open again. */
async function bindChanges(store: Store, bindPasswords: readonly BindPassword[]): Promise<Change[]> {
  const changes: Change[] = []
  for (const { mount: path, password } of bindPasswords) {
    const mount = await new MountTable(store, new Map(), systemRandom).at(path)
    if (mount?.type !== 'ldap')
      throw invalid(`--bind-password: the backup has no LDAP mount at ${path}; nothing was restored`)
    const written =
      mount.class === 'auth'
        ? await changed(store, loginConfigKind, mount.id, password)
        : await changed(store, engineConfigKind, mount.id, password)
    if (!written)
      throw invalid(`--bind-password: the mount ${path} is not configured in the backup; nothing was restored`)
    changes.push(written, openedGuard(mount.id))
  }
  return changes
}

async function changed<T extends object>(
  store: Store,
  kind: RecordKind<T>,
  mountId: string,
  bindPassword: Secret,
): Promise<Change | undefined> {
  const found = await store.read(kind, mountId)
  return found && put(kind, mountId, { ...found.value, bindPassword }, { expected: found.version })
}
