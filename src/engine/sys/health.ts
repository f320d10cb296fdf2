import type { Clock } from '../../lib/clock.ts'
import { invalid } from '../../lib/errors.ts'
import type { Values } from '../../schema/answer.ts'
import { type Route, route } from '../backend.ts'

/**
 * The level of the API that clients may count on: Terraform and others decide by this number which fields to send. Our own
 * version stands beside it.
 */
export const API_VERSION = '1.21.0+ent'

/** `sys/health`, `sys/seal-status`, `sys/leader`, `sys/init`: bare objects for load balancers and clients; no token needed. */
export function healthRoutes(deps: {
  readonly clock: Clock
  readonly version: string
  readonly clusterId: string
}): Route[] {
  const cluster = { cluster_name: 'keyturn', cluster_id: deps.clusterId, keyturn_version: deps.version }
  const health = (): Values => ({
    initialized: true,
    sealed: false,
    standby: false,
    performance_standby: false,
    replication_performance_mode: 'disabled',
    replication_dr_mode: 'disabled',
    server_time_utc: Math.floor(deps.clock.now().getTime() / 1000),
    version: API_VERSION,
    ...cluster,
  })
  const sealStatus: Values = {
    type: 'key-file',
    initialized: true,
    sealed: false,
    t: 1,
    n: 1,
    progress: 0,
    nonce: '',
    version: API_VERSION,
    build_date: '',
    migration: false,
    recovery_seal: false,
    storage_type: 'keyturn',
    ...cluster,
  }
  const leader: Values = {
    ha_enabled: false,
    is_self: true,
    leader_address: '',
    leader_cluster_address: '',
    performance_standby: false,
  }
  return [
    route({
      pattern: 'health',
      unauthenticated: true,
      isProbe: true,
      read: async () => ({ shape: 'raw', data: health(), health: 'active' }),
    }),
    route({
      pattern: 'seal-status',
      unauthenticated: true,
      isProbe: true,
      read: async () => ({ shape: 'raw', data: sealStatus }),
    }),
    route({
      pattern: 'leader',
      unauthenticated: true,
      isProbe: true,
      read: async () => ({ shape: 'raw', data: leader }),
    }),
    route({
      pattern: 'init',
      unauthenticated: true,
      // The first start has done it.
      read: async () => ({ shape: 'raw', data: { initialized: true } }),
      write: async () => {
        throw invalid('the server is already initialized')
      },
    }),
  ]
}
