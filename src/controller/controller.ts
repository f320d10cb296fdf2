import type { Client } from '../client/client.ts'
import type { Followed } from '../client/events.ts'
import { abortable } from '../lib/abortable.ts'
import { backoffMs } from '../lib/backoff.ts'
import type { Clock } from '../lib/clock.ts'
import { messageOf } from '../lib/errors.ts'
import type { Logger } from '../lib/log.ts'
import type { Random } from '../lib/random.ts'
import { valueAt } from '../lib/value-at.ts'
import { AccessPolicy } from '../schema/access-policy.ts'
import type { Condition } from '../schema/conditions.ts'
import { findKind, KINDS } from '../schema/kinds.ts'
import { LdapAuth } from '../schema/ldap-auth.ts'
import { LdapEngine } from '../schema/ldap-engine.ts'
import { LdapGroupMapping } from '../schema/ldap-group-mapping.ts'
import { LdapStaticRole } from '../schema/ldap-static-role.ts'
import { engineAccess } from './access.ts'
import { accessPolicyReconciler } from './access-policy.ts'
import { ClaimIndex } from './claims.ts'
import { DirectorySlots } from './directory-slots.ts'
import { authReconciler } from './ldap-auth.ts'
import { engineReconciler } from './ldap-engine.ts'
import { groupMappingReconciler } from './ldap-group-mapping.ts'
import { staticRoleReconciler } from './ldap-static-role.ts'
import { openMac } from './mac.ts'
import { type Reconcile, type ReconcilerDeps, reconcileWith } from './reconcile.ts'
import { runController } from './runtime/controller.ts'
import { WorkQueue } from './runtime/queue.ts'
import type { ResourceRef, Sink, Source } from './source/source.ts'

/*
 * The operator: custom resources → engine records, engine events → Secrets and statuses. It knows the engine only as a client and the world
 * only as Source and Sink, so it is the same in a cluster and over a directory of manifests. Invariants: an object is worked on by one
 * worker at a time; nothing depends on having seen an event (each reconcile compares what is with what should be); whoever waits for
 * another object is asked again when that one changes. It rotates nothing: the engine owns time.
 */

export interface ControllerOptions {
  readonly source: Source
  readonly sink: Sink
  readonly client: Client
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly signal: AbortSignal
  /** Kinds to work on; all when absent. The others are known, for one object needs another, and left as they are. */
  readonly controllers?: readonly string[]
  /** Namespace of the Secrets that cluster-scoped kinds may name. */
  readonly centralNamespace?: string
  readonly workers?: number
  /** How long work under way may go on after the stop. */
  readonly graceMs?: number
}

const CENTRAL_NAMESPACE = 'keyturn-system'
const WORKERS = 16
/** Of them: calls of roles that wait for one directory, and for all. The others are there for whatever else is to be done. */
const PLACES = { perEngine: 8, total: 12 }

/**
 * Runs until `signal` aborts, wherever it has got to by then; resolves after the last reconcile has ended or was broken off. Throws when the
 * source cannot be started.
 */
export async function startController(options: ControllerOptions): Promise<void> {
  try {
    await run(options)
  } catch (error) {
    if (!options.signal.aborted) throw error
  }
}

async function run(options: ControllerOptions): Promise<void> {
  const { source, sink, client, clock, random, log, signal, workers = WORKERS } = options
  const centralNamespace = options.centralNamespace ?? CENTRAL_NAMESPACE
  const kinds = KINDS.map(({ kind }) => kind).filter((kind) => options.controllers?.includes(kind) ?? true)
  const queues = new Map(kinds.map((kind) => [kind, new WorkQueue({ clock, random })]))
  const owners = new Map<string, ResourceRef>()
  const uids = new Map<string, string>()
  const resolved = new Map<string, ReadonlySet<string>>()
  const claims = new ClaimIndex(source)

  const enqueue: ReconcilerDeps['enqueue'] = (ref, { afterMs } = {}) => {
    const queue = queues.get(ref.kind)
    if (afterMs === undefined) queue?.add(keyOf(ref), 1)
    else queue?.addAfter(keyOf(ref), afterMs, 3)
  }

  // The feed's place is taken before anything is looked at, so that nothing happens unseen in between.
  const after = await insist(() => feedPosition(client, signal))
  const mac = await insist(() => openMac({ source, sink, random, namespace: centralNamespace }))
  const deps = {
    source,
    sink,
    engine: engineAccess(client),
    clock,
    mac,
    centralNamespace,
    enqueue,
    resolved,
    claims,
    slots: new DirectorySlots(PLACES, enqueue),
    isGone: (owner: string) => owner !== '' && !owners.has(owner),
    // Where engines are not worked on their tables are what they are.
    isResolved: (engine: string, namespace: string) =>
      !queues.has(LdapEngine.kind) || (resolved.get(engine)?.has(namespace) ?? false),
  }
  const reconcilers: Readonly<Record<string, Reconcile>> = {
    [AccessPolicy.kind]: reconcileWith(accessPolicyReconciler(deps), deps),
    [LdapEngine.kind]: reconcileWith(engineReconciler(deps), deps),
    [LdapAuth.kind]: reconcileWith(authReconciler(deps), deps),
    [LdapGroupMapping.kind]: reconcileWith(groupMappingReconciler(deps), deps),
    [LdapStaticRole.kind]: reconcileWith(staticRoleReconciler(deps), deps),
  }
  const synced = source.start(
    KINDS.map(({ kind }) => kind),
    onChange,
    signal,
  )
  const running = [...queues].map(async ([kind, queue]) => {
    const reconcile = reconcilers[kind]
    if (!reconcile) throw new Error(`no reconciler for ${kind}`)
    await runController(
      {
        name: kind,
        queue,
        synced,
        workers,
        reconcile: (key, late) => reconcile(refOf(kind, key), late),
        ...(options.graceMs !== undefined && { graceMs: options.graceMs }),
      },
      { clock, log },
      signal,
    )
  })
  await Promise.all([synced, ...running, followFeed(after)])

  /** Tries until it succeeds: the engine or the API server may be away just now. Throws when the signal aborts. */
  async function insist<T>(work: () => Promise<T>): Promise<T> {
    for (let failures = 1, told = ''; ; failures++) {
      try {
        return await abortable(work(), signal)
      } catch (error) {
        signal.throwIfAborted()
        const message = messageOf(error)
        if (message !== told) log.warn({ error: message }, 'cannot begin yet')
        told = message
        await clock.sleep(backoffMs(failures, { firstMs: 250, limitMs: 5_000 }, random), signal)
      }
    }
  }

  function onChange(ref: ResourceRef, why: 'user' | 'resync'): void {
    if (findKind(ref.kind)) {
      if (ref.kind === LdapStaticRole.kind) claims.note(ref)
      const object = source.get(ref)
      know(ref, object && `cr:${object.metadata.uid}`)
      if (!object) wakeLosers(ref.kind)
      queues.get(ref.kind)?.add(keyOf(ref), why === 'user' ? 1 : 3)
      if (why === 'user') wakeReferrers(ref)
      return
    }
    if (ref.kind === 'Namespace') everything(LdapEngine.kind)
    if (ref.namespace === centralNamespace) for (const kind of [LdapEngine.kind, LdapAuth.kind]) everything(kind)
    // An output Secret that somebody changed.
    if (ref.kind === 'Secret') for (const role of outputOwners(ref)) enqueue(role)
  }

  /** Remembers which object an owner in the engine is. */
  function know(ref: ResourceRef, owner: string | undefined): void {
    const key = `${ref.kind}/${keyOf(ref)}`
    const before = uids.get(key)
    if (before !== undefined && before !== owner) owners.delete(before)
    if (owner === undefined) uids.delete(key)
    else uids.set(key, owner)
    if (owner !== undefined) owners.set(owner, ref)
  }

  /** Whoever names the object looks again: what was applied too early converges by itself. */
  function wakeReferrers({ kind, name }: ResourceRef): void {
    const waits = (of: string, refers: (spec: unknown) => boolean) => {
      for (const { metadata, spec } of source.list(of)) if (refers(spec)) enqueue(refTo(of, metadata))
    }
    if (kind === LdapEngine.kind) waits(LdapStaticRole.kind, (spec) => valueAt(spec, 'engineRef', 'name') === name)
    if (kind === LdapAuth.kind) waits(LdapGroupMapping.kind, (spec) => valueAt(spec, 'authRef', 'name') === name)
    // Which policies it no longer names nobody knows any more.
    if (kind === LdapAuth.kind || kind === LdapGroupMapping.kind) everything(AccessPolicy.kind, { afterMs: 1000 })
  }

  /** What the one that went had is free for those who were told that it is taken. */
  function wakeLosers(kind: string): void {
    for (const { metadata, status } of source.list(kind))
      if (conditionIn(status, 'Accepted')?.reason === 'NameConflict') enqueue(refTo(kind, metadata))
  }

  function outputOwners({ namespace, name }: ResourceRef): ResourceRef[] {
    return source
      .list(LdapStaticRole.kind, namespace)
      .filter(({ metadata, spec }) => (valueAt(spec, 'output', 'name') ?? metadata.name) === name)
      .map(({ metadata }) => refTo(LdapStaticRole.kind, metadata))
  }

  function everything(kind: string, options?: { readonly afterMs: number }): void {
    for (const { metadata } of source.list(kind)) enqueue(refTo(kind, metadata), options)
  }

  /** Only roles tell how their directory is: their engine's object is looked at when that may be news. */
  function tellEngine(role: ResourceRef, type: string): void {
    const name = valueAt(source.get(role)?.spec, 'engineRef', 'name')
    if (typeof name !== 'string') return
    const ref = { kind: LdapEngine.kind, name }
    const isConnected = conditionIn(source.get(ref)?.status, 'Connected')?.status === 'True'
    if (type === 'rotate-fail' || (type === 'rotate' && !isConnected)) enqueue(ref, { afterMs: 500 })
  }

  async function followFeed(from: number): Promise<void> {
    await synced
    let last = from
    while (!signal.aborted) {
      try {
        for await (const followed of client.followEvents(last, signal)) last = heard(followed)
      } catch (error) {
        if (signal.aborted) return
        log.error({ error: messageOf(error) }, 'the event feed cannot be followed; trying again')
        await clock.sleep(1000, signal).catch(() => undefined)
      }
    }
  }

  /** Returns the number to go on from. */
  function heard(followed: Followed): number {
    if (followed.kind === 'gap') {
      log.warn({ resumeAfter: followed.resumeAfter }, 'events were missed; looking at everything')
      for (const kind of kinds) everything(kind)
      return followed.resumeAfter
    }
    const { number, owner, path, type } = followed.event
    const ref = owners.get(owner)
    // Only of roles: what else we own changes by our own hand.
    if (ref && path.startsWith('static-role/')) {
      queues.get(ref.kind)?.add(keyOf(ref), 2)
      tellEngine(ref, type)
    }
    return number
  }
}

async function feedPosition(client: Client, signal: AbortSignal): Promise<number> {
  const answer = await client.read('sys/events', {}, { signal })
  return Number(answer?.data?.['last'] ?? 0)
}

function keyOf({ namespace, name }: ResourceRef): string {
  return namespace === undefined || namespace === '' ? name : `${namespace}/${name}`
}

function refOf(kind: string, key: string): ResourceRef {
  const slash = key.indexOf('/')
  return slash < 0 ? { kind, name: key } : { kind, namespace: key.slice(0, slash), name: key.slice(slash + 1) }
}

function refTo(kind: string, { name, namespace }: { readonly name: string; readonly namespace?: string }): ResourceRef {
  return { kind, name, ...(namespace !== undefined && { namespace }) }
}

/** A condition of an unparsed status. */
function conditionIn(status: unknown, type: string): Partial<Condition> | undefined {
  const conditions = valueAt(status, 'conditions')
  return Array.isArray(conditions) ? conditions.find((one: Partial<Condition>) => one.type === type) : undefined
}
