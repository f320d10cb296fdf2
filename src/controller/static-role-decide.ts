import type { Fields } from '../client/transport.ts'
import type { LdapStaticRoleSpec } from '../schema/ldap-static-role.ts'
import { instantOf, numberOf, textOf } from './access.ts'
import { no, type Statement, yes } from './conditions.ts'

/** A static role as the engine has it. */
export interface EngineRole {
  /** Empty when made through the API. */
  readonly owner: string
  readonly username: string
  /** As it was given. */
  readonly dn: string
  readonly rotationPeriodMs: number
  readonly resolvedDN: string
  /** 0 while no password is known. */
  readonly credentialVersion: number
  readonly lastRotation: Date | undefined
  readonly nextRotation: Date | undefined
  /** The last failure since the last success. */
  readonly failure: { readonly class: string; readonly message: string } | undefined
}

/** Reads the engine's answer. */
export function engineRole(answer: Readonly<Record<string, unknown>>): EngineRole {
  const failure: unknown = answer['last_error']
  const failed = typeof failure === 'object' && failure !== null
  return {
    owner: textOf(answer, 'owner'),
    username: textOf(answer, 'username'),
    dn: textOf(answer, 'dn'),
    rotationPeriodMs: numberOf(answer, 'rotation_period') * 1000,
    resolvedDN: textOf(answer, 'resolved_dn') || textOf(answer, 'dn'),
    credentialVersion: numberOf(answer, 'credential_version'),
    lastRotation: instantOf(answer, 'last_service_rotation'),
    nextRotation: instantOf(answer, 'next_rotation'),
    failure: failed
      ? { class: String(Reflect.get(failure, 'class')), message: String(Reflect.get(failure, 'message')) }
      : undefined,
  }
}

export type RoleStep =
  | { readonly write: Fields; readonly why: 'create' | 'adopt' | 'update' }
  | { readonly write: undefined }
  | { readonly refuse: Statement }

/** What to write to the engine so that its role is the declared one. `isGone` tells whether an owner is a resource that is no more. */
export function decideRole(
  spec: Pick<LdapStaticRoleSpec, 'username' | 'dn' | 'rotationPeriod' | 'skipImportRotation' | 'adoptionPolicy'>,
  seen: EngineRole | undefined,
  owner: string,
  isGone: (owner: string) => boolean,
): RoleStep {
  const period = { rotation_period: spec.rotationPeriod / 1000 }
  const account = { username: spec.username, ...(spec.dn !== undefined && { dn: spec.dn }) }
  if (!seen) {
    const skip = spec.skipImportRotation
    return {
      write: { ...account, ...period, ...(skip !== undefined && { skip_import_rotation: skip }) },
      why: 'create',
    }
  }
  if (seen.owner === owner)
    return seen.rotationPeriodMs === spec.rotationPeriod ? { write: undefined } : { write: period, why: 'update' }
  const isLeft = seen.owner !== '' && isGone(seen.owner)
  if (seen.owner !== '' && !isLeft)
    return { refuse: no('Accepted', 'NameConflict', 'Another resource owns the role of this name in the engine.') }
  if (spec.adoptionPolicy === 'Adopt') return { write: { ...account, ...period, adopt: true }, why: 'adopt' }
  const whose = isLeft ? 'belongs to a resource that is gone' : 'was made through the API'
  const message = `The role ${whose}. Set adoptionPolicy: Adopt to take it over without rotating its password.`
  return { refuse: isLeft ? no('Accepted', 'NameConflict', message) : no('Synced', 'OwnedByApi', message) }
}

/** What taking a role over changes of it, for people. */
export function adoptionChanges(
  seen: EngineRole,
  spec: Pick<LdapStaticRoleSpec, 'username' | 'dn' | 'rotationPeriod'>,
): string {
  const changes = [
    ['username', seen.username, spec.username],
    ['dn', seen.dn, spec.dn ?? seen.dn],
    ['rotation_period', `${seen.rotationPeriodMs / 1000}s`, `${spec.rotationPeriod / 1000}s`],
  ].flatMap(([name, before, after]) => (before === after ? [] : [`${name}: "${before}" → "${after}"`]))
  return changes.join(', ') || 'nothing changes'
}

/** Whether the last due rotation succeeded. The message holds no counter and no clock: it changes only when the matter does. */
export function credentialStatement(role: EngineRole): Statement {
  const type = 'CredentialCurrent'
  if (role.failure) {
    const { message } = role.failure
    // The bind of the engine itself, not that of the account.
    return no(type, role.failure.class === 'bind-refused' ? 'BindFailed' : 'RotationFailed', message)
  }
  if (role.credentialVersion === 0)
    return no(
      type,
      'PasswordNotYetKnown',
      'The password is the one that the account had before; it is known after the first rotation.',
    )
  return yes(type, role.lastRotation ? 'Rotated' : 'Imported', 'The last rotation that was due succeeded.')
}

/** What a failed rotation says of the object itself, where it says more than that it failed. */
export function accountStatement(role: EngineRole): Statement | undefined {
  if (role.failure?.class === 'not-permitted') return no('Accepted', 'TargetNotPermitted', role.failure.message)
  if (role.failure?.class === 'absent') return no('Synced', 'EntryNotFound', role.failure.message)
  return undefined
}
