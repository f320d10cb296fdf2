import { inject } from 'vitest'
import './cluster-global.ts'
import { type Cluster, connectCluster } from './cluster.ts'

/** The run's shared cluster, or `undefined` where none can be had (`describe.skipIf(!sharedCluster())`). */
export function sharedCluster(): Cluster | undefined {
  const info = inject('cluster')
  return info ? connectCluster(info) : undefined
}

let count = 0

/** Makes a namespace of its own for a test; names never repeat within a run. */
export async function newNamespace(cluster: Cluster, labels: Record<string, string> = {}): Promise<string> {
  const name = `e2e-${process.pid}-${++count}`
  await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } }))
  return name
}
