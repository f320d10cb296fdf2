import { AppError } from '../lib/errors.ts'
import { LdapEngine, type LdapEngineSpec, type LdapEngineStatus } from '../schema/ldap-engine.ts'
import { readSpec } from '../schema/validate.ts'
import { statementFor } from './access.ts'
import type { ClaimIndex } from './claims.ts'
import { no, passed, type Statement } from './conditions.ts'
import type { DirectorySlots } from './directory-slots.ts'
import type { ReconcilerDeps } from './reconcile.ts'
import type { Resource } from './source/source.ts'
import { adoptionChanges, decideRole, type EngineRole, engineRole } from './static-role-decide.ts'
import type { RoleContext, RolePlace } from './static-role-show.ts'
import { admits } from './tenancy.ts'

/** What static roles need to know of each other and of their engine. */
export interface RoleDeps {
  readonly claims: Pick<ClaimIndex, 'rivals' | 'isBehindAnOlder'>
  /** Whether the engine's table takes this namespace's labels into account; asks for it when not. */
  readonly isResolved: (engine: string, namespace: string) => boolean
  readonly slots: DirectorySlots
}

/** `wait`: whoever ends the wait asks again. */
export type Ensured =
  | 'wait'
  | { readonly role: EngineRole; readonly place: RolePlace }
  | { readonly statements: readonly Statement[]; readonly retry?: AppError }

/** Makes sure that the engine has the role as it is declared, and ours. */
export async function ensureRole(deps: ReconcilerDeps & RoleDeps, context: RoleContext): Promise<Ensured> {
  const { source, engine, enqueue, sink } = deps
  const { resource, spec, as, claim } = context
  const { namespace = '' } = resource.metadata
  const found = findEngine(source, spec.engineRef.name)
  if (!found)
    return { statements: [no('Accepted', 'EngineNotFound', `There is no LdapEngine ${spec.engineRef.name}.`)] }
  const place = { mount: found.path, roleName: roleNameOf(resource, spec) }
  const path = `${place.mount}/static-role/${place.roleName}`
  try {
    const seen = await readRole(engine, path, as)
    // Who has the account already keeps it, so only a newcomer looks around.
    if (seen?.owner !== as.owner) {
      if (found.isGoing) {
        const message = `The LdapEngine ${spec.engineRef.name} is being deleted.`
        return { statements: [no('Accepted', 'EngineNotFound', message)] }
      }
      if (deps.claims.isBehindAnOlder(resource))
        return { statements: [no('Accepted', 'NameConflict', 'An older resource manages this account or role name.')] }
    }
    const step = decideRole(spec, seen, as.owner ?? '', deps.isGone)
    if ('refuse' in step) return { statements: passed(step.refuse) }
    if (step.write === undefined && seen) {
      await claim()
      return { role: seen, place }
    }
    // The table must know the tenant's namespace before the engine is asked on its behalf. That of an engine that is going stays as it is.
    if (!found.isGoing && !deps.isResolved(spec.engineRef.name, namespace)) {
      enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name })
      return engineNotReady(source, spec.engineRef.name)
    }
    await claim()
    const why = 'why' in step ? step.why : undefined
    const write = async () => {
      if (why === 'adopt' && seen) await takeOver(seen)
      await engine.write(path, step.write ?? {}, as)
    }
    // A new period asks no directory.
    if (why === 'update') await write()
    else if ((await deps.slots.run(spec.engineRef.name, refTo(resource), write)) === 'busy') return 'wait'
    const role = await readRole(engine, path, as)
    if (!role) {
      const gone = no('Synced', 'EngineUnavailable', 'The role is not there right after it was written.')
      return { statements: passed(gone) }
    }
    if (!seen) enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name }, { afterMs: 2000 })
    return { role, place }
  } catch (error) {
    // No such mount, or one without configuration: its LdapEngine has not come that far.
    if (error instanceof AppError && (error.kind === 'not-found' || error.reason === 'not-configured'))
      return engineNotReady(source, spec.engineRef.name)
    const { statement, retry } = statementFor(error)
    // It may be the directory: the engine's object tells of that.
    if (retry?.reason !== undefined) enqueue({ kind: LdapEngine.kind, name: spec.engineRef.name }, { afterMs: 500 })
    return { statements: passed(await explained(deps, context, statement)), ...(retry && { retry }) }
  }

  async function takeOver(seen: EngineRole): Promise<void> {
    const note = `the role is taken over; ${adoptionChanges(seen, spec)}`
    sink.event(resource, { type: 'Normal', reason: 'Adopted', note, action: 'Reconcile' })
    // Its resource went with no chance to let it go.
    if (seen.owner !== '') await engine.write(path, { disown: true }, { ...as, owner: seen.owner })
  }
}

/** The mount of an engine; one that is being deleted serves the roles that it has. */
export function findEngine(
  source: ReconcilerDeps['source'],
  name: string,
): { readonly path: string; readonly isGoing: boolean } | undefined {
  const found = source.get({ kind: LdapEngine.kind, name })
  const reading = found && readSpec(LdapEngine, found.spec)
  if (!reading || !('spec' in reading)) return undefined
  return {
    path: (reading.spec as LdapEngineSpec).path ?? name,
    isGoing: found.metadata.deletionTimestamp !== undefined,
  }
}

export function roleNameOf({ metadata }: Resource, { roleName }: Pick<RoleContext['spec'], 'roleName'>): string {
  return (roleName ?? `${metadata.namespace}/${metadata.name}`).toLowerCase()
}

export function refTo({ kind, metadata: { name, namespace } }: Resource) {
  return { kind, name, ...(namespace !== undefined && { namespace }) }
}

export async function readRole(
  engine: ReconcilerDeps['engine'],
  path: string,
  as: RoleContext['as'],
): Promise<EngineRole | undefined> {
  const answer = await engine.read(path, as)
  return answer && engineRole(answer)
}

/** What is not permitted because no entry is for the namespace is told as that; of the rest the engine tells a tenant as little as it may. */
export async function explained(
  { source }: Pick<ReconcilerDeps, 'source'>,
  { resource, spec }: Pick<RoleContext, 'resource' | 'spec'>,
  statement: Statement,
): Promise<Statement> {
  if (statement.reason !== 'TargetNotPermitted') return statement
  const { name } = spec.engineRef
  const reading = readSpec(LdapEngine, source.get({ kind: LdapEngine.kind, name })?.spec)
  const { namespace = '' } = resource.metadata
  const labels = (await source.namespaceLabels(namespace)) ?? {}
  if (!('spec' in reading) || admits(reading.spec as LdapEngineSpec, 'StaticRole', namespace, labels)) return statement
  const message = `No tenancy entry of the LdapEngine ${name} lets the namespace ${namespace} have static roles.`
  return no('Accepted', 'NamespaceNotAllowed', message)
}

/** Waits in silence while the engine is being set up (it wakes its roles); says so when the engine says that it cannot. */
function engineNotReady(source: ReconcilerDeps['source'], name: string): Ensured {
  const found = source.get({ kind: LdapEngine.kind, name })
  const { conditions, observedGeneration } = (found?.status ?? {}) as Partial<LdapEngineStatus>
  const ready = conditions?.find(({ type }) => type === 'Ready')
  if (ready?.status !== 'False' || observedGeneration !== found?.metadata.generation) return 'wait'
  const told = no('Synced', 'EngineNotReady', `The LdapEngine ${name} is not ready: ${ready.message}`)
  return { statements: passed(told) }
}
