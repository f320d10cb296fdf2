import type { Clock } from '../../lib/clock.ts'
import type { Logger } from '../../lib/log.ts'
import { valueAt } from '../../lib/value-at.ts'
import { sameValue } from '../../schema/resource.ts'
import { type ObjectStore, refOf, type StoredObject } from './object-store.ts'
import type { SecretDirectory } from './secret-directory.ts'
import type { Resource, ResourceRef, Sink } from './source.ts'

/** Results as files and log lines: Secrets in a directory, statuses beside the objects' state, events in the log. */
export function createFileSink(options: {
  readonly objects: ObjectStore
  readonly secrets: SecretDirectory
  readonly log: Logger
  readonly clock: Clock
  /** The object lost its last finalizer while it was being deleted: it is gone now. */
  readonly onGone: (ref: ResourceRef) => void
}): Sink {
  const { objects, secrets, log, clock, onGone } = options
  /** The object as it is now, if it is still the one that the reconciler saw. */
  const current = (resource: Resource): StoredObject | undefined => {
    const object = objects.get(refOf(resource))
    return object?.metadata.uid === resource.metadata.uid ? object : undefined
  }
  return {
    applySecret: (request) => secrets.write(request),
    deleteSecret: (ref, uid) => secrets.remove(ref, uid),
    async writeStatus(resource, status) {
      const object = current(resource)
      if (!object) return
      const next = withRejection(object, status, clock.now())
      if (sameValue(object.status, next)) return
      const before = readyText(object.status)
      await objects.put({ ...object, status: next })
      const after = readyText(next)
      const { kind, metadata } = object
      if (after !== before)
        log.info({ kind, namespace: metadata.namespace, name: metadata.name, ready: after }, 'status')
    },
    async addFinalizer(resource, name) {
      const object = current(resource)
      if (!object || object.metadata.finalizers.includes(name)) return
      await objects.put({
        ...object,
        metadata: { ...object.metadata, finalizers: [...object.metadata.finalizers, name] },
      })
    },
    async removeFinalizer(resource, name) {
      const object = current(resource)
      if (!object?.metadata.finalizers.includes(name)) return
      const finalizers = object.metadata.finalizers.filter((other) => other !== name)
      if (finalizers.length > 0 || !object.metadata.deletionTimestamp)
        return objects.put({ ...object, metadata: { ...object.metadata, finalizers } })
      await objects.remove(refOf(object))
      log.info({ kind: object.kind, namespace: object.metadata.namespace, name: object.metadata.name }, 'deleted')
      onGone(refOf(object))
    },
    event({ kind, metadata }, { type, reason, note }) {
      const fields = { kind, namespace: metadata.namespace, name: metadata.name, reason }
      if (type === 'Warning') log.warn(fields, note)
      else log.info(fields, note)
    },
  }
}

/** The status with a condition that says why the manifest's present text is not in force, where that is so. */
function withRejection(object: StoredObject, status: unknown, now: Date): unknown {
  if (object.rejected === undefined || typeof status !== 'object' || status === null) return status
  const type = 'ManifestInForce'
  const old = conditionsOf(object.status).find((condition) => condition['type'] === type)
  const condition = {
    type,
    status: 'False',
    reason: 'Refused',
    message: `The manifest was not taken; the spec before it stays in force. ${object.rejected}`,
    observedGeneration: object.metadata.generation,
    lastTransitionTime: old?.['lastTransitionTime'] ?? now.toISOString().replace(/\.\d+Z$/, 'Z'),
  }
  return { ...status, conditions: [...conditionsOf(status).filter((other) => other['type'] !== type), condition] }
}

function conditionsOf(status: unknown): Record<string, unknown>[] {
  const conditions = valueAt(status, 'conditions')
  return Array.isArray(conditions) ? conditions : []
}

/** The condition Ready in one line. */
function readyText(status: unknown): string {
  const ready = conditionsOf(status).find((condition) => condition['type'] === 'Ready')
  return ready ? `${ready['status']} ${ready['reason']}: ${ready['message']}` : ''
}
