import type { TestProject } from 'vitest/node'
import { type ClusterInfo, clusterAvailable, type StartedCluster, startCluster } from './cluster.ts'

/** One control plane for all files of the project `e2e`; tests keep apart by namespace and by unlike names of cluster objects. */

declare module 'vitest' {
  export interface ProvidedContext {
    cluster: ClusterInfo | null
  }
}

let cluster: StartedCluster | undefined

export async function setup(project: TestProject): Promise<void> {
  if (!clusterAvailable()) {
    const why =
      'no Kubernetes here: neither the cached components nor Go to build them; the tests against it are LEFT OUT'
    if (process.env['CI'] === 'true') throw new Error(why)
    console.error(`\n*** ${why} ***\n`)
    project.provide('cluster', null)
    return
  }
  cluster = await startCluster()
  const { kubeconfig, kubeconfigs, server, caFile, adminToken, tokens, auditLog } = cluster
  project.provide('cluster', { kubeconfig, kubeconfigs, server, caFile, adminToken, tokens, auditLog })
}

export async function teardown(): Promise<void> {
  await cluster?.stop()
}
