import type { LdapStaticRoleSpec, LdapStaticRoleStatus } from '../schema/ldap-static-role.ts'
import { numberOf, secretOf, textOf } from './access.ts'
import { blockedUntil } from './blocked.ts'
import type { Statement } from './conditions.ts'
import type { Credential } from './output.ts'
import type { Context, Outcome, ReconcilerDeps } from './reconcile.ts'
import { seconds } from './runtime/status.ts'
import { syncOutput } from './secret-output.ts'
import { credentialStatement, type EngineRole } from './static-role-decide.ts'

/** What a role in the engine shows of itself: the Secret with its password, and the fields of the status. */

export type RoleContext = Context<LdapStaticRoleSpec, LdapStaticRoleStatus>

/** Where a role is in the engine. */
export interface RolePlace {
  /** Path of the mount. */
  readonly mount: string
  readonly roleName: string
}

/** An event may be lost with a crash at the wrong moment: look again this long after a rotation was due. */
const AFTER_DUE_MS = 60_000

/** Statements are those about password and Secret; `Accepted` and `Synced` are the caller's. */
export async function showRole(
  deps: ReconcilerDeps,
  context: RoleContext,
  { mount, roleName }: RolePlace,
  role: EngineRole,
  rotationFailure?: Statement,
): Promise<Outcome> {
  const { resource, spec, status } = context
  const credential = await readCredential(deps, context, { mount, roleName })
  const output = await syncOutput(deps, resource, spec.output, credential, {
    secret: status.secret,
    secretMAC: status.secretMAC,
    toldNotOwned: status.conditions?.some(({ reason }) => reason === 'NotOwned') ?? false,
  })
  const version = credential?.version ?? role.credentialVersion
  if (status.credentialVersion !== undefined && status.credentialVersion > 0 && version > status.credentialVersion)
    deps.sink.event(resource, {
      type: 'Normal',
      reason: 'PasswordRotated',
      note: `the password is version ${version} now`,
      action: 'Reconcile',
    })
  const current = rotationFailure ?? credentialStatement(role)
  if (current.status === 'False' && current.reason !== 'PasswordNotYetKnown' && !saidBefore(status, current))
    deps.sink.event(resource, {
      type: 'Warning',
      reason: 'RotationFailed',
      note: current.message.slice(0, 900),
      action: 'Rotate',
    })
  return {
    statements: [current, ...(output.statement ? [output.statement] : [])],
    ...(!output.statement && { without: ['SecretSynced'] }),
    fields: {
      engineMount: mount,
      engineRoleName: roleName,
      resolvedDN: role.resolvedDN || undefined,
      credentialVersion: version,
      lastRotationTime: role.lastRotation && seconds(role.lastRotation),
      nextRotationTime: role.nextRotation && seconds(role.nextRotation),
      lastHandledRotateRequest: status.lastHandledRotateRequest,
      secret: output.secret,
      secretMAC: output.secretMAC,
    },
    ...lookAgain(role.nextRotation, output.statement, status.conditions, deps.clock.now()),
    ...(output.retry && { retry: output.retry }),
  }
}

async function readCredential(
  { engine }: Pick<ReconcilerDeps, 'engine'>,
  { spec, as }: RoleContext,
  { mount, roleName }: RolePlace,
): Promise<Credential | undefined> {
  const answer = await engine.read(`${mount}/static-cred/${roleName}`, as)
  if (!answer) return undefined
  const lastRotation = textOf(answer, 'last_service_rotation')
  const at = new Date(lastRotation)
  return {
    username: textOf(answer, 'username') || spec.username,
    dn: textOf(answer, 'dn'),
    password: secretOf(answer, 'password'),
    previousPassword: secretOf(answer, 'last_password'),
    version: numberOf(answer, 'credential_version'),
    lastRotation: Number.isNaN(at.getTime()) || at.getUTCFullYear() <= 1970 ? undefined : at,
    source: `${spec.engineRef.name}/${roleName}`,
  }
}

/** After the next rotation is due; sooner where a foreign Secret is in the way, for nobody tells us when it goes. */
function lookAgain(
  nextRotation: Date | undefined,
  output: Statement | undefined,
  before: RoleContext['status']['conditions'],
  now: Date,
): Pick<Outcome, 'lookAgainAt'> {
  const isBlocked = output?.status === 'False' && output.reason !== 'PasswordNotYetKnown'
  const times = [
    ...(nextRotation ? [nextRotation.getTime() + AFTER_DUE_MS] : []),
    ...(isBlocked ? [blockedUntil('SecretSynced', before, now).getTime()] : []),
  ]
  return times.length === 0 ? {} : { lookAgainAt: new Date(Math.min(...times)) }
}

function saidBefore(status: RoleContext['status'], { type, reason }: Statement): boolean {
  return status.conditions?.some((old) => old.type === type && old.status === 'False' && old.reason === reason) ?? false
}
