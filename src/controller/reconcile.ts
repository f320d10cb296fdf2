import type * as z from 'zod'
import type { Clock } from '../lib/clock.ts'
import { AppError } from '../lib/errors.ts'
import type { Condition } from '../schema/conditions.ts'
import type { Kind } from '../schema/resource.ts'
import { readSpec } from '../schema/validate.ts'
import { type As, type EngineAccess, failureReason, isWorthRetrying, refusal } from './access.ts'
import { no, type Statement, summarise, yes } from './conditions.ts'
import type { Mac } from './mac.ts'
import { echoOf, RECONCILE_REQUEST } from './requests.ts'
import type { ReconcileResult } from './runtime/controller.ts'
import { nextConditions } from './runtime/status.ts'
import type { Resource, ResourceRef, Sink, Source } from './source/source.ts'

/*
 * What every kind's reconciler does the same: read the spec, put the finalizer on before the engine is told anything, state conditions,
 * write the status only when it differs, and let the finalizer go when the engine is rid of the object. A kind supplies `apply` and
 * `remove`; both must be repeatable at every point.
 */

export const FINALIZER = 'keyturn.dev/engine'
export const FORCE_DELETE = 'keyturn.dev/force-delete'

/** How soon a deletion that is in the way of something is tried again: not all that uses an object tells when it goes. */
const OBSTACLE_MS = 5_000

export interface ReconcilerDeps {
  readonly source: Source
  readonly sink: Sink
  readonly engine: EngineAccess
  readonly clock: Pick<Clock, 'now'>
  readonly mac: Mac
  /** The namespace whose Secrets and ConfigMaps cluster-scoped kinds may name. */
  readonly centralNamespace: string
  /** Asks for another object to be looked at. */
  readonly enqueue: (ref: ResourceRef, options?: { readonly afterMs?: number }) => void
  /** Whether an owner in the engine is a resource that does not exist any more. */
  readonly isGone: (owner: string) => boolean
}

/** What became of an object: conditions and the other fields of its status. */
export interface Outcome {
  readonly statements: readonly Statement[]
  /** Fields of the status; those left out go. */
  readonly fields: Readonly<Record<string, unknown>>
  readonly lookAgainAt?: Date
  /** Condition types that this object has no use for. */
  readonly without?: readonly string[]
  /** Tried again with back-off. */
  readonly retry?: AppError
}

export interface Context<Spec, Status> {
  readonly resource: Resource
  readonly spec: Spec
  readonly status: Partial<Status> & { readonly conditions?: readonly Condition[] }
  readonly as: As
  /** Must be called before the first write to the engine. */
  readonly claim: () => Promise<void>
  /** Writes fields of the status at once: that something is done, before it is done, where it must not be done twice. */
  readonly record: (fields: Partial<Status>) => Promise<void>
}

export interface Reconciler<S extends z.ZodObject, T extends z.ZodObject> {
  readonly kind: Kind<S, T>
  /** Condition types in order; `Ready` repeats the first that fails. */
  readonly conditions: readonly string[]
  /** `wait`: nothing can be said yet, and whoever ends the wait asks again; the status stays as it is, and begins with all unknown. */
  apply(context: Context<z.output<S>, z.output<T>>): Promise<Outcome | 'wait'>
  /** Rids the engine of the object; a statement says why not yet. */
  remove(context: Removal<z.output<S>, z.output<T>>): Promise<Statement | undefined>
}

export interface Removal<Spec, Status> extends Omit<Context<Spec, Status>, 'spec' | 'claim' | 'record'> {
  /** Undefined when it cannot be read. */
  readonly spec: Spec | undefined
  /** Whatever uses it: what cannot go is left to everybody. */
  readonly isForced: boolean
}

/** A reconciler as the queue's workers call it. */
export type Reconcile = (ref: ResourceRef, signal: AbortSignal) => Promise<ReconcileResult | undefined>

export function reconcileWith<S extends z.ZodObject, T extends z.ZodObject>(
  reconciler: Reconciler<S, T>,
  deps: ReconcilerDeps,
): Reconcile {
  const { source, sink, clock } = deps
  const { kind } = reconciler

  return async (ref, signal) => {
    const resource = source.get(ref)
    if (!resource) return undefined
    const parsed = kind.status.safeParse(resource.status ?? {})
    // A status that an older version wrote otherwise is made anew.
    const status = (parsed.success ? parsed.data : {}) as Partial<z.output<T>> & { conditions?: Condition[] }
    const reading = readSpec(kind, resource.spec)
    const as = { ...actingFor(resource), signal }
    if (resource.metadata.deletionTimestamp) {
      const isForced = resource.metadata.annotations[FORCE_DELETE] === 'true'
      return erase({ resource, status, as, spec: 'spec' in reading ? reading.spec : undefined, isForced })
    }
    const outcome = kind.reservedNames?.includes(resource.metadata.name)
      ? invalidSpec(status, `the name ${resource.metadata.name} is taken`)
      : 'problems' in reading
        ? invalidSpec(status, reading.problems.join('; '))
        : await apply({
            resource,
            status,
            as,
            spec: reading.spec,
            claim: () => claim(resource),
            async record(fields) {
              await sink.writeStatus(resource, { ...status, ...fields })
              // What is written of the status later in this reconcile begins with it.
              Object.assign(status, fields)
            },
          })
    if (outcome === 'wait') {
      if (!status.conditions) await write(resource, status, { statements: [], fields: kept(status) })
      return undefined
    }
    await write(resource, status, outcome)
    if (outcome.retry) throw outcome.retry
    return outcome.lookAgainAt ? { lookAgainAt: outcome.lookAgainAt } : undefined
  }

  async function apply(context: Context<z.output<S>, z.output<T>>): Promise<Outcome | 'wait'> {
    try {
      return await reconciler.apply(context)
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      const statement = refusal(error)
      const before = reconciler.conditions.slice(0, reconciler.conditions.indexOf(statement.type))
      const passed = before.map((type) => yes(type, type, 'As declared.'))
      return {
        statements: [...passed, statement],
        fields: kept(context.status),
        ...(isWorthRetrying(error, statement) && { retry: error }),
      }
    }
  }

  async function claim(resource: Resource): Promise<void> {
    if (!resource.metadata.finalizers.includes(FINALIZER)) await sink.addFinalizer(resource, FINALIZER)
  }

  async function write(resource: Resource, status: { conditions?: readonly Condition[] }, outcome: Outcome) {
    const { generation, annotations } = resource.metadata
    const request = echoOf(annotations[RECONCILE_REQUEST])
    const expected = reconciler.conditions.filter((type) => !outcome.without?.includes(type))
    const stated = summarise(expected, outcome.statements)
    tellAccepted(resource, status.conditions ?? [], stated)
    await sink.writeStatus(resource, {
      ...defined(outcome.fields),
      ...(request !== undefined && { lastHandledReconcileRequest: request }),
      observedGeneration: generation,
      conditions: nextConditions(status.conditions ?? [], stated, { generation, now: clock.now() }),
    })
  }

  function tellAccepted(resource: Resource, before: readonly Condition[], stated: readonly Statement[]): void {
    const now = stated.find(({ type }) => type === 'Accepted')
    const old = before.find(({ type }) => type === 'Accepted')
    if (!now || now.status === 'Unknown' || (old?.status === now.status && old.reason === now.reason)) return
    const accepted = now.status === 'True'
    sink.event(resource, {
      type: accepted ? 'Normal' : 'Warning',
      reason: accepted ? 'Accepted' : now.reason === 'TargetNotPermitted' ? 'NotPermitted' : now.reason,
      note: now.message.slice(0, 900),
      action: 'Accept',
    })
  }

  async function erase(context: Parameters<typeof reconciler.remove>[0]): Promise<ReconcileResult | undefined> {
    const { resource, status, isForced } = context
    if (!resource.metadata.finalizers.includes(FINALIZER)) return undefined
    let obstacle: Statement | undefined
    let retry: AppError | undefined
    try {
      obstacle = await reconciler.remove(context)
    } catch (error) {
      if (error instanceof AppError) {
        obstacle = no('Deleting', failureReason(error), error.message)
        retry = error
      } else if (!isForced) throw error
    }
    if (isForced) {
      const note = 'deleted by force: what the engine holds for it may remain there, and belongs to nobody'
      sink.event(resource, { type: 'Warning', reason: 'Orphaned', note, action: 'Delete' })
    }
    if (!obstacle || isForced) {
      await sink.removeFinalizer(resource, FINALIZER)
      return undefined
    }
    const { generation } = resource.metadata
    const others = (status.conditions ?? []).filter(({ type }) => type !== 'Deleting' && type !== 'Ready')
    const stated = [no('Ready', obstacle.reason, obstacle.message), ...others, obstacle]
    await sink.writeStatus(resource, {
      ...status,
      observedGeneration: generation,
      conditions: nextConditions(status.conditions ?? [], stated, { generation, now: clock.now() }),
    })
    if (retry) throw retry
    return { lookAgainAfterMs: OBSTACLE_MS }
  }
}

/** Who asks, and for which object. Cluster-scoped objects are an administrator's: they ask as no tenant. */
export function actingFor({ metadata: { namespace, uid } }: Resource): As {
  return { owner: `cr:${uid}`, ...(namespace !== undefined && { principal: `kubernetes:${namespace}` }) }
}

/** The fields of a status besides those that are always written anew. */
export function kept(status: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(status).filter(([name]) => name !== 'conditions' && name !== 'observedGeneration'),
  )
}

function invalidSpec(status: object, message: string): Outcome {
  return { statements: [no('Accepted', 'InvalidSpec', message)], fields: kept(status) }
}

function defined(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
}
