import { unavailable } from '../../lib/errors.ts'
import type { KubeClient } from './kube-client.ts'
import { KubeError } from './kube-error.ts'
import type { ResourceType } from './kube-object.ts'

interface Target {
  readonly name: string
  readonly namespace?: string | undefined
  readonly uid: string
}

/** Puts a finalizer on the object under a manager of its own; the uid keeps it from landing on a namesake. Repeatable. */
export async function addFinalizer(
  client: KubeClient,
  type: ResourceType,
  { name, namespace, uid }: Target,
  finalizer: string,
  manager: string,
): Promise<void> {
  const metadata = { name, ...(namespace && { namespace }), uid, finalizers: [finalizer] }
  await client.apply(type, { name, namespace }, { metadata }, { manager, metadataOnly: true })
}

/** Takes the finalizer off, leaving others' where they are. Repeatable; an object that is gone or renamed is left alone. */
export async function removeFinalizer(
  client: KubeClient,
  type: ResourceType,
  { name, namespace, uid }: Target,
  finalizer: string,
): Promise<void> {
  for (let attempt = 0; attempt < 5; attempt++) {
    const object = await client.get(type, { name, namespace }, { metadataOnly: true })
    const finalizers = object?.metadata.finalizers ?? []
    const index = finalizers.indexOf(finalizer)
    if (object?.metadata.uid !== uid || index < 0) return
    const path = `/metadata/finalizers/${index}`
    const operations = [
      { op: 'test', path, value: finalizer },
      { op: 'test', path: '/metadata/uid', value: uid },
      { op: 'remove', path },
    ] as const
    try {
      await client.jsonPatch(type, { name, namespace }, operations, { metadataOnly: true })
      return
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return
      // A failed test is a 422: somebody changed the list meanwhile, look again.
      if (!(error instanceof KubeError) || (error.status !== 422 && error.status !== 409)) throw error
    }
  }
  throw unavailable(`the finalizers of ${type.plural} ${name} keep changing`)
}
