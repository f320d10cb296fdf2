import type { Fields } from '../client/transport.ts'
import type { LdapStaticRoleSpec } from '../schema/ldap-static-role.ts'
import { instantOf, numberOf, textOf } from './access.ts'
import { no, type Statement, yes } from './conditions.ts'

/** A static role as the engine has it. */
export interface EngineRole {
  /** Empty when made through the API. */
  readonly owner: string
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

/** What to write to the engine so that its role is the declared one. */
export function decideRole(
  spec: Pick<LdapStaticRoleSpec, 'username' | 'dn' | 'rotationPeriod' | 'skipImportRotation' | 'adoptionPolicy'>,
  seen: EngineRole | undefined,
  owner: string,
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
  if (seen.owner !== '' && seen.owner !== owner)
    return {
      refuse: no('Accepted', 'NameConflict', 'Another resource owns the role of this name in the engine.'),
    }
  if (seen.owner === '') {
    if (spec.adoptionPolicy !== 'Adopt')
      return {
        refuse: no(
          'Synced',
          'OwnedByApi',
          'The role was made through the API. Set adoptionPolicy: Adopt to take it over without rotating its password.',
        ),
      }
    return { write: { ...account, ...period, adopt: true }, why: 'adopt' }
  }
  return seen.rotationPeriodMs === spec.rotationPeriod ? { write: undefined } : { write: period, why: 'update' }
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
