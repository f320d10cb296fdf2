import { isRecord } from '../runtime/kube-error.ts'
import type { KubeObject } from '../runtime/kube-object.ts'
import { sameJson } from '../runtime/status.ts'
import type { Change } from '../runtime/store.ts'
import type { OutputSecretMeta, Resource, ResourceRef } from './source.ts'

/* Objects of the API as reconcilers see them. */

/** Whether more than the status changed: annotations too, since requests by annotation do not change the generation. */
export function asksForWork({ object, old }: Change): boolean {
  const parts = ({ generation, uid, labels, annotations, finalizers, deletionTimestamp }: KubeObject['metadata']) => [
    [generation, uid, labels ?? {}, annotations ?? {}],
    [finalizers ?? [], deletionTimestamp],
  ]
  return !old || !sameJson(parts(object.metadata), parts(old.metadata))
}

export function isObserved({ status, metadata }: KubeObject): boolean {
  return isRecord(status) && status['observedGeneration'] === metadata.generation
}

export function refOf(
  kind: string,
  { name, namespace }: { readonly name: string; readonly namespace?: string },
): ResourceRef {
  return { kind, name, ...(namespace && { namespace }) }
}

export function resourceOf(kind: string, object: KubeObject): Resource {
  const { name, namespace, uid = '', generation = 0, creationTimestamp, deletionTimestamp } = object.metadata
  const { labels = {}, annotations = {}, finalizers = [] } = object.metadata
  return {
    kind,
    metadata: {
      name,
      ...(namespace && { namespace }),
      uid,
      generation,
      creationTimestamp: new Date(creationTimestamp ?? 0),
      ...(deletionTimestamp && { deletionTimestamp: new Date(deletionTimestamp) }),
      labels,
      annotations,
      finalizers,
    },
    spec: object['spec'],
    ...(object['status'] !== undefined && { status: object['status'] }),
  }
}

export function metaOf(object: KubeObject): OutputSecretMeta {
  const { uid = '', labels = {}, annotations = {}, ownerReferences = [] } = object.metadata
  const keys = object['managedKeys']
  const managedKeys = Array.isArray(keys) ? keys.map(String) : undefined
  return { uid, labels, annotations, managedKeys, owners: ownerReferences.map((owner) => owner.uid) }
}
