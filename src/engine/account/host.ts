import type { Secret } from '../../lib/secret.ts'
import type { BindIdentity, DirectorySettings, Schema } from '../directory/directory.ts'
import { VersionConflict } from '../storage/driver.ts'
import type { NewEvent } from '../storage/event.ts'
import type { AccountState } from './account.ts'

/** How the state machine reads and writes the record that holds an account (a static role today), knowing nothing else of it. */
export interface AccountHost {
  /** One lock per account: nothing else waits for it. */
  readonly lockKey: string
  readonly mountId: string
  /** Reads the record anew; `undefined` when it is gone. */
  load(): Promise<LoadedAccount | undefined>
  /** Whether the record, and what it says of its mount, are still as they were loaded. */
  isUnchanged(loaded: LoadedAccount): Promise<boolean>
  /**
   * Writes the account back into the record it was loaded from, in one commit with its due time (`accountDue`) and events. `promoted`
   * tells that a new password was confirmed at that instant: a creation is complete with it. Throws `VersionConflict` when the record
   * changed since.
   */
  save(
    loaded: LoadedAccount,
    next: { account: AccountState; dueAt: Date; promoted?: Date; events: readonly NewEvent[] },
  ): Promise<LoadedAccount>
  /** Takes back a record whose creation was definitely refused. Throws `VersionConflict` when the record changed since. */
  discard(loaded: LoadedAccount): Promise<void>
}

export interface LoadedAccount {
  readonly account: AccountState
  readonly version: number
  /** The record's creation has not been acknowledged yet. */
  readonly creating: boolean
  readonly settings: DirectorySettings
  /** Whom to bind as to change passwords. */
  readonly identity: BindIdentity
  readonly schema: Schema
  readonly credentialType: 'password' | 'phrase'
  /** Where the entry is: at a DN, or the one entry below `userDn` whose `userAttr` is `username`. */
  readonly target:
    | { readonly dn: string }
    | { readonly userDn: string; readonly userAttr: string; readonly username: string }
  /**
   * Rejects with `invalid` unless this entry may be managed (tenancy, the mount's own bind DN, an account of another role); awaited
   * before each write to the directory.
   */
  permit(entryDn: string): Promise<void>
  /** A new password by the rules of the mount. */
  generate(): Secret
  /** When the next regular rotation is due, counted from a rotation at `from`. */
  nextRotation(from: Date): Date
  /** What events about this account say: mount path, object path, owner. */
  readonly subject: Pick<NewEvent, 'mount' | 'path' | 'owner'>
}

/** Throws `VersionConflict` when the account is not as it was loaded: what it says is not to be acted by any more. */
export async function requireUnchanged(host: AccountHost, loaded: LoadedAccount): Promise<void> {
  if (!(await host.isUnchanged(loaded))) throw new VersionConflict(host.lockKey)
}
