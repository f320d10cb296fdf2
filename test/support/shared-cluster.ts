import { inject } from 'vitest'
import './cluster-global.ts'
import { type Cluster, connectCluster } from './cluster.ts'

/** The run's shared cluster, or `undefined` where none can be had (`describe.skipIf(!sharedCluster())`). */
export function sharedCluster(): Cluster | undefined {
  const info = inject('cluster')
  return info ? connectCluster(info) : undefined
}
