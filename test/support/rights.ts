import type { Rendered } from './chart.ts'
import { type Cluster, until } from './cluster.ts'

/**
 * Waits until the API server grants the user what the role bindings among these objects give: it hears of them a moment after they are
 * written. The administrator asks, so that no refusal of the user stands in the audit log.
 */
export async function untilGranted(cluster: Cluster, user: string, objects: readonly Rendered[]): Promise<void> {
  for (const { roleRef, metadata } of objects.filter((object) => object.roleRef)) {
    const { namespace } = metadata
    const role = objects.find(
      (object) =>
        object.kind === roleRef.kind &&
        object.metadata.name === roleRef.name &&
        (object.kind === 'ClusterRole' || object.metadata.namespace === namespace),
    )
    for (const { apiGroups, resources, resourceNames = [], verbs } of role.rules) {
      const [resource, subresource] = resources[0].split('/')
      const resourceAttributes = {
        ...{ verb: verbs[0], group: apiGroups[0], resource, subresource },
        ...{ name: resourceNames[0], namespace },
      }
      await until(20, `${user} to be granted ${verbs[0]} ${resources[0]} in ${namespace ?? 'all'}`, async () => {
        const { body } = await cluster.request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', {
          ...{ apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview' },
          spec: { user, resourceAttributes },
        })
        return body.status.allowed as boolean
      })
    }
  }
}
