import { AppError } from '../lib/errors.ts'
import { LdapEngine } from '../schema/ldap-engine.ts'
import { LdapStaticRole, type LdapStaticRoleSpec } from '../schema/ldap-static-role.ts'
import { refusal } from './access.ts'
import { standsAside } from './claims.ts'
import { no, type Statement, yes } from './conditions.ts'
import { templateProblem } from './output.ts'
import { kept, type Outcome, type Reconciler, type ReconcilerDeps } from './reconcile.ts'
import { echoOf, ROTATE_REQUEST } from './requests.ts'
import { releaseOutput } from './secret-output.ts'
import type { Resource } from './source/source.ts'
import { accountStatement, type EngineRole } from './static-role-decide.ts'
import {
  type Ensured,
  ensureRole,
  explained,
  findEngine,
  type RoleDeps,
  readRole,
  refTo,
  roleNameOf,
} from './static-role-ensure.ts'
import { type RoleContext, type RolePlace, showRole } from './static-role-show.ts'

/** Which accounts are the same only the directory knows: nobody tells when the one in the way has gone. */
const CONFLICT_MS = 60_000

/*
 * LdapStaticRole → the engine's static role → output Secret and status. The engine owns time: it rotates whether this runs or not. What is
 * done here follows from what the engine says now, never from having seen an event, so every step may be repeated after a crash. A role
 * of ours goes on turning whatever is declared wrongly here, so its Secret is always kept current, and only then is said what is wrong.
 */

export function staticRoleReconciler(
  deps: ReconcilerDeps & RoleDeps,
): Reconciler<typeof LdapStaticRole.spec, typeof LdapStaticRole.status> {
  const { source, sink, engine, enqueue } = deps

  return {
    kind: LdapStaticRole,
    conditions: ['Accepted', 'Synced', 'CredentialCurrent', 'SecretSynced'],
    async apply(context) {
      const { resource, spec, status } = context
      const wasSuspended = status.conditions?.some(({ type }) => type === 'Suspended') ?? false
      if (spec.suspend) {
        if (!wasSuspended) {
          tell(resource, 'Suspended', 'nothing is changed for this object until it is resumed')
          enqueueRivals(resource)
        }
        return suspended(status)
      }
      if (wasSuspended) tell(resource, 'Resumed', 'this object is looked after again')
      const ensured = await declared(context)
      if (ensured === 'wait') return 'wait'
      if ('role' in ensured) return current(context, ensured.place, ensured.role)
      if (ensured.statements.some((said) => standsAside(said) && said.reason !== 'NameConflict'))
        enqueueRivals(resource)
      const outcome = (await held(context)) ?? { statements: [], fields: kept(status) }
      const isInTheWay = ensured.statements.some(({ reason }) => reason === 'NameConflict')
      return {
        ...outcome,
        ...(isInTheWay && { lookAgainAt: new Date(deps.clock.now().getTime() + CONFLICT_MS) }),
        statements: [...ensured.statements, ...outcome.statements],
        ...(ensured.retry && { retry: ensured.retry }),
      }
    },

    async remove({ resource, spec, status, as, isForced }) {
      const retain = isForced || spec?.deletionPolicy === 'Retain'
      if (status.engineMount !== undefined && status.engineRoleName !== undefined) {
        const place = { mount: status.engineMount, roleName: status.engineRoleName }
        await release(pathOf(place), as, retain)
      } else if (spec) await releaseUnrecorded(resource, spec, as, retain)
      if (spec) {
        enqueueRivals(resource)
        enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name }, { afterMs: 1000 })
      }
      return status.secret && releaseOutput(deps, resource, status.secret, spec?.output)
    },
  }

  async function declared(context: RoleContext): Promise<Ensured> {
    const problem = templateProblem(context.spec.output)
    if (problem !== undefined) return { statements: [no('Accepted', 'InvalidTemplate', problem)] }
    return ensureRole(deps, context)
  }

  /** The role is as declared: rotates it if that was asked for. */
  async function current(context: RoleContext, place: RolePlace, found: EngineRole): Promise<Outcome> {
    const rotated = await rotateOnRequest(context, place)
    const after = rotated.asked ? await readRole(engine, pathOf(place), context.as) : undefined
    const role = after ?? found
    const failure = accountStatement(role)
    const about = failure && (await explained(deps, context, failure))
    const outcome = await showRole(deps, context, place, role, rotated.failure)
    return {
      ...outcome,
      statements: [
        about?.type === 'Accepted' ? about : yes('Accepted', 'Accepted', 'As declared.'),
        about?.type === 'Synced' ? about : yes('Synced', 'Synced', 'The role in the engine is as declared.'),
        ...outcome.statements,
      ],
      fields: { ...outcome.fields, ...rotated.handled },
    }
  }

  /** What a role of ours shows that cannot be as declared. Undefined: the engine has none for this object, or cannot tell. */
  async function held(context: RoleContext): Promise<Outcome | undefined> {
    const { engineMount: mount, engineRoleName: roleName } = context.status
    if (mount === undefined || roleName === undefined) return undefined
    const place = { mount, roleName }
    try {
      const role = await readRole(engine, pathOf(place), context.as)
      return role && role.owner === context.as.owner ? await showRole(deps, context, place, role) : undefined
    } catch (error) {
      if (error instanceof AppError) return undefined
      throw error
    }
  }

  /** Others that want the same account get their turn when this one does not have it. */
  function enqueueRivals(resource: Resource): void {
    for (const rival of deps.claims.rivals(resource)) enqueue(rival, { afterMs: 100 })
  }

  /**
   * Rotates once for each new value of the annotation. That it is handled is written down first: whatever fails afterwards, one request is
   * never two rotations. Also a rotation that fails counts as handled, for the engine itself tries again.
   */
  async function rotateOnRequest(
    { resource, spec, status, as, record }: RoleContext,
    { mount, roleName }: RolePlace,
  ): Promise<{ asked: boolean; failure?: Statement; handled?: { readonly lastHandledRotateRequest: string } }> {
    const request = echoOf(resource.metadata.annotations[ROTATE_REQUEST])
    if (request === undefined || request === status.lastHandledRotateRequest) return { asked: false }
    const handled = { lastHandledRotateRequest: request }
    // A role that was made a moment ago has a fresh password.
    if (status.credentialVersion === undefined) return { asked: false, handled }
    const answer = await deps.slots.run(spec.engineRef.name, refTo(resource), async () => {
      await record(handled)
      return engine.write(`${mount}/rotate-role/${roleName}`, {}, as).then(() => 'rotated' as const, rotationFailed)
    })
    if (answer === 'busy') return { asked: false }
    return { asked: true, ...(answer !== 'rotated' && { failure: answer }) }
  }

  /** Deletes our role, or leaves it to everybody; a role that is not ours is left alone. */
  async function release(path: string, as: RoleContext['as'], retain: boolean): Promise<void> {
    let role: EngineRole | undefined
    try {
      role = await readRole(engine, path, as)
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
  async function releaseUnrecorded(
    resource: Resource,
    spec: LdapStaticRoleSpec,
    as: RoleContext['as'],
    retain: boolean,
  ): Promise<void> {
    const found = findEngine(source, spec.engineRef.name)
    if (!found) return
    const place = { mount: found.path, roleName: roleNameOf(resource, spec) }
    await release(pathOf(place), as, retain)
  }

  function tell(resource: Resource, reason: string, note: string): void {
    sink.event(resource, { type: 'Normal', reason, note, action: 'Reconcile' })
  }
}

function rotationFailed(error: unknown): Statement {
  if (!(error instanceof AppError)) throw error
  return no('CredentialCurrent', 'RotationFailed', error.message)
}

function pathOf({ mount, roleName }: RolePlace): string {
  return `${mount}/static-role/${roleName}`
}

/** Somebody else's: left alone. */
function leaveForeign(error: unknown): void {
  if (!(error instanceof AppError) || refusal(error).reason !== 'NameConflict') throw error
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
