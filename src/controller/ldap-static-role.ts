import { AppError, unavailable } from '../lib/errors.ts'
import { LdapEngine, type LdapEngineSpec, type LdapEngineStatus } from '../schema/ldap-engine.ts'
import { LdapStaticRole, type LdapStaticRoleSpec, type LdapStaticRoleStatus } from '../schema/ldap-static-role.ts'
import { readSpec } from '../schema/validate.ts'
import { numberOf, refusal, secretOf, statementFor, textOf } from './access.ts'
import { blockedUntil } from './blocked.ts'
import { type ClaimIndex, standsAside } from './claims.ts'
import { no, type Statement, yes } from './conditions.ts'
import { type Credential, templateProblem } from './output.ts'
import { type Context, kept, type Outcome, type Reconciler, type ReconcilerDeps } from './reconcile.ts'
import { seconds } from './runtime/status.ts'
import { removeOutput, syncOutput } from './secret-output.ts'
import type { Resource } from './source/source.ts'
import { accountStatement, credentialStatement, decideRole, type EngineRole, engineRole } from './static-role-decide.ts'

/*
 * LdapStaticRole → the engine's static role → output Secret and status. The engine owns time: it rotates whether this runs or not. What is
 * done here follows from what the engine says now, never from having seen an event, so every step may be repeated after a crash.
 */

export const ROTATE_REQUEST = 'keyturn.dev/rotate-requested-at'
/** An event may be lost with a crash at the wrong moment: look again this long after a rotation was due. */
const AFTER_DUE_MS = 60_000

type RoleContext = Context<LdapStaticRoleSpec, LdapStaticRoleStatus>

/** What static roles need to know of each other and of their engine. */
export interface RoleDeps {
  readonly claims: Pick<ClaimIndex, 'rivals' | 'isBehindAnOlder'>
  /** Whether the engine's table takes this namespace's labels into account; asks for it when not. */
  readonly isResolved: (engine: string, namespace: string) => boolean
}

export function staticRoleReconciler(
  deps: ReconcilerDeps & RoleDeps,
): Reconciler<typeof LdapStaticRole.spec, typeof LdapStaticRole.status> {
  const { source, sink, engine, enqueue } = deps

  return {
    kind: LdapStaticRole,
    conditions: ['Accepted', 'Synced', 'CredentialCurrent', 'SecretSynced'],
    async apply(context) {
      const { resource, spec, status, as } = context
      const wasSuspended = status.conditions?.some(({ type }) => type === 'Suspended') ?? false
      if (spec.suspend) {
        if (!wasSuspended) {
          tell(resource, 'Suspended', 'nothing is changed for this object until it is resumed')
          enqueueRivals(resource)
        }
        return suspended(status)
      }
      if (wasSuspended) tell(resource, 'Resumed', 'this object is looked after again')
      const problem = templateProblem(spec.output)
      if (problem !== undefined) return stopped(context, no('Accepted', 'InvalidTemplate', problem))
      const mount = engineMount(spec.engineRef.name)
      if ('statement' in mount) return stopped(context, mount.statement)
      const { name, namespace = '' } = resource.metadata
      const roleName = (spec.roleName ?? `${namespace}/${name}`).toLowerCase()
      const path = `${mount.path}/static-role/${roleName}`
      const seen = await ensureRole(context, path)
      if (seen === 'wait') return 'wait'
      if ('statement' in seen) {
        if (standsAside(seen.statement) && seen.statement.reason !== 'NameConflict') enqueueRivals(resource)
        return { ...stopped(context, ...passed(seen.statement)), ...(seen.retry && { retry: seen.retry }) }
      }
      const accepted = yes('Accepted', 'Accepted', 'As declared.')
      const rotated = await rotateOnRequest(context, mount.path, roleName)
      const role = rotated.asked ? ((await readRole(path, as)) ?? seen.role) : seen.role
      const about = accountStatement(role)
      const credential = await readCredential(context, mount.path, roleName)
      const output = await syncOutput(deps, resource, spec.output, credential, {
        secret: status.secret,
        secretMAC: status.secretMAC,
        toldNotOwned: status.conditions?.some(({ reason }) => reason === 'NotOwned') ?? false,
      })
      const version = credential?.version ?? role.credentialVersion
      if (status.credentialVersion !== undefined && status.credentialVersion > 0 && version > status.credentialVersion)
        tell(resource, 'PasswordRotated', `the password is version ${version} now`)
      const current = rotated.failure ?? credentialStatement(role)
      if (current.status === 'False' && current.reason !== 'PasswordNotYetKnown' && !saidBefore(status, current))
        sink.event(resource, {
          type: 'Warning',
          reason: 'RotationFailed',
          note: current.message.slice(0, 900),
          action: 'Rotate',
        })
      const statements = [
        about?.type === 'Accepted' ? about : accepted,
        about?.type === 'Synced' ? about : yes('Synced', 'Synced', 'The role in the engine is as declared.'),
        current,
        ...(output.statement ? [output.statement] : []),
      ]
      return {
        statements,
        ...(!output.statement && { without: ['SecretSynced'] }),
        fields: {
          engineMount: mount.path,
          engineRoleName: roleName,
          resolvedDN: role.resolvedDN || undefined,
          credentialVersion: version,
          lastRotationTime: role.lastRotation && seconds(role.lastRotation),
          nextRotationTime: role.nextRotation && seconds(role.nextRotation),
          lastHandledRotateRequest: resource.metadata.annotations[ROTATE_REQUEST] ?? status.lastHandledRotateRequest,
          secret: output.secret,
          secretMAC: output.secretMAC,
        },
        ...lookAgain(role.nextRotation, output.statement, status.conditions, deps.clock.now()),
        ...(output.statement?.reason === 'Forbidden' && { retry: unavailable(output.statement.message) }),
      }
    },

    async remove({ resource, spec, status, as }) {
      const { namespace = '' } = resource.metadata
      if (status.engineMount !== undefined && status.engineRoleName !== undefined) {
        const path = `${status.engineMount}/static-role/${status.engineRoleName}`
        await release(path, as, spec?.deletionPolicy === 'Retain')
      } else if (spec) await releaseUnrecorded(resource, spec, as)
      if (status.secret) {
        const policy = spec?.output?.deletionPolicy ?? status.secret.deletionPolicy
        const { deletionPolicy: _, ...secret } = status.secret
        await removeOutput(deps, namespace, { ...secret, ...(policy && { deletionPolicy: policy }) })
      }
      if (spec) {
        enqueueRivals(resource)
        enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name }, { afterMs: 1000 })
      }
      return undefined
    },
  }

  function engineMount(name: string): { path: string } | { statement: Statement } {
    const found = source.get({ kind: LdapEngine.kind, name })
    const absent = { statement: no('Accepted', 'EngineNotFound', `There is no LdapEngine ${name}.`) }
    if (!found || found.metadata.deletionTimestamp) return absent
    const reading = readSpec(LdapEngine, found.spec)
    if (!('spec' in reading)) return absent
    return { path: (reading.spec as LdapEngineSpec).path ?? name }
  }

  /** Others that want the same account get their turn when this one does not have it. */
  function enqueueRivals(resource: Resource): void {
    for (const rival of deps.claims.rivals(resource)) enqueue(rival, { afterMs: 100 })
  }

  async function readRole(path: string, as: RoleContext['as']): Promise<EngineRole | undefined> {
    const answer = await engine.read(path, as)
    return answer && engineRole(answer)
  }

  async function ensureRole(
    { resource, spec, as, claim }: RoleContext,
    path: string,
  ): Promise<'wait' | { role: EngineRole } | { statement: Statement; retry?: AppError }> {
    try {
      const seen = await readRole(path, as)
      // Who has the account already keeps it, so only a newcomer looks around.
      if (seen?.owner !== as.owner && deps.claims.isBehindAnOlder(resource))
        return { statement: no('Accepted', 'NameConflict', 'An older resource manages this account or role name.') }
      const step = decideRole(spec, seen, as.owner ?? '')
      if ('refuse' in step) return { statement: step.refuse }
      if (step.write === undefined && seen) {
        await claim()
        return { role: seen }
      }
      // The table must know the tenant's namespace before the engine is asked on its behalf.
      if (!deps.isResolved(spec.engineRef.name, resource.metadata.namespace ?? '')) {
        enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name })
        return engineNotReady(spec.engineRef.name)
      }
      await claim()
      if (step.write && 'why' in step && step.why === 'adopt') {
        const period = seen ? seen.rotationPeriodMs / 1000 : 0
        tell(
          resource,
          'Adopted',
          `the role is taken over; rotation_period ${period} s becomes ${spec.rotationPeriod / 1000} s`,
        )
      }
      await engine.write(path, step.write ?? {}, as)
      const role = await readRole(path, as)
      if (!role)
        return { statement: no('Synced', 'EngineUnavailable', 'The role is not there right after it was written.') }
      if (!seen) enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name }, { afterMs: 2000 })
      return { role }
    } catch (error) {
      // No such mount, or one without configuration: its LdapEngine has not come that far.
      if (error instanceof AppError && (error.kind === 'not-found' || error.reason === 'not-configured'))
        return engineNotReady(spec.engineRef.name)
      const { statement, retry } = statementFor(error)
      return { statement, ...(retry && { retry }) }
    }
  }

  /** Waits in silence while the engine is being set up (it wakes its roles); says so when the engine says that it cannot. */
  function engineNotReady(name: string): 'wait' | { statement: Statement } {
    const found = source.get({ kind: LdapEngine.kind, name })
    const { conditions, observedGeneration } = (found?.status ?? {}) as Partial<LdapEngineStatus>
    const ready = conditions?.find(({ type }) => type === 'Ready')
    if (ready?.status !== 'False' || observedGeneration !== found?.metadata.generation) return 'wait'
    return { statement: no('Synced', 'EngineNotReady', `The LdapEngine ${name} is not ready: ${ready.message}`) }
  }

  /** Rotates once for each new value of the annotation; also a failure counts as handled, for the engine itself tries again. */
  async function rotateOnRequest(
    { resource, status, as }: RoleContext,
    mount: string,
    roleName: string,
  ): Promise<{ asked: boolean; failure?: Statement }> {
    const request = resource.metadata.annotations[ROTATE_REQUEST]
    if (request === undefined || request === status.lastHandledRotateRequest) return { asked: false }
    // A role that was made a moment ago has a fresh password.
    if (status.credentialVersion === undefined) return { asked: false }
    try {
      await engine.write(`${mount}/rotate-role/${roleName}`, {}, as)
      return { asked: true }
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      return { asked: true, failure: no('CredentialCurrent', 'RotationFailed', error.message) }
    }
  }

  async function readCredential(
    { spec, as }: RoleContext,
    mount: string,
    roleName: string,
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

  /** Deletes our role, or leaves it to everybody; a role that is not ours is left alone. */
  async function release(path: string, as: RoleContext['as'], retain: boolean): Promise<void> {
    let role: EngineRole | undefined
    try {
      role = await readRole(path, as)
    } catch (error) {
      // The mount is gone, and all its roles with it.
      if (error instanceof AppError && error.kind === 'not-found') return
      throw error
    }
    // One whose creation has not ended is not shown; it must not come into being for an object that is gone.
    if (!role) return engine.delete(path, as).catch(leaveForeign)
    if (role.owner !== as.owner) return
    if (retain) await engine.write(path, { disown: true }, as)
    else await engine.delete(path, as)
  }

  /** We died after the first write and before the status: the names follow from the spec. */
  async function releaseUnrecorded(resource: Resource, spec: LdapStaticRoleSpec, as: RoleContext['as']): Promise<void> {
    const mount = engineMount(spec.engineRef.name)
    if ('statement' in mount) return
    const { name, namespace } = resource.metadata
    const roleName = (spec.roleName ?? `${namespace}/${name}`).toLowerCase()
    await release(`${mount.path}/static-role/${roleName}`, as, spec.deletionPolicy === 'Retain')
  }

  function tell(resource: Resource, reason: string, note: string): void {
    sink.event(resource, { type: 'Normal', reason, note, action: 'Reconcile' })
  }
}

/** Somebody else's: left alone. */
function leaveForeign(error: unknown): void {
  if (!(error instanceof AppError) || refusal(error).reason !== 'NameConflict') throw error
}

function stopped({ status }: RoleContext, ...statements: Statement[]): Outcome {
  return { statements, fields: kept(status) }
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

/** The statements before a failing one hold. */
function passed(statement: Statement): Statement[] {
  return statement.type === 'Accepted' ? [statement] : [yes('Accepted', 'Accepted', 'As declared.'), statement]
}

/** While suspended the conditions stay as they were, and one more says so. */
function suspended(status: RoleContext['status']): Outcome {
  const before = (status.conditions ?? []).filter(
    ({ type }) => !['Ready', 'Suspended', 'Stalled', 'Reconciling'].includes(type),
  )
  return {
    statements: [...before, yes('Suspended', 'Suspended', 'spec.suspend is true: nothing is changed for this object.')],
    fields: kept(status),
  }
}

function saidBefore(status: RoleContext['status'], { type, reason }: Statement): boolean {
  return status.conditions?.some((old) => old.type === type && old.status === 'False' && old.reason === reason) ?? false
}
