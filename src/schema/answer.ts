import type { Secret } from '../lib/secret.ts'

/** Values of an answer. A `Secret` is revealed by the API and hashed by the audit log; a `Date` is RFC 3339. */
export type Value =
  | null
  | boolean
  | number
  | string
  | Secret
  | Date
  | readonly Value[]
  | { readonly [name: string]: Value }
export type Values = Readonly<Record<string, Value>>

/**
 * What the engine answers. `empty`: done, nothing to say. `absent`: nothing there (also: nothing to list).
 * `content`: `shape` says how it is laid out: `envelope` in `data`; `flat` in `data` and at the top level too;
 * `raw` the bare object (health and the like); `keys` a list that follows the dialect (D5); `listing` a list that is always an envelope.
 */
export type EngineAnswer =
  | { readonly kind: 'empty'; readonly requestId: string; readonly warnings: readonly string[] }
  | { readonly kind: 'absent'; readonly requestId: string; readonly warnings: readonly string[] }
  | ContentAnswer

export interface ContentAnswer {
  readonly kind: 'content'
  readonly requestId: string
  readonly mountType: string
  readonly warnings: readonly string[]
  readonly shape: 'envelope' | 'flat' | 'raw' | 'keys' | 'listing'
  readonly data?: Values
  readonly keys?: readonly string[]
  readonly auth?: AuthAnswer
  readonly lease?: { readonly id: string; readonly durationMs: number; readonly renewable: boolean }
  /** Only of `sys/health`: how the server is, for the status table of `api/`. */
  readonly health?: 'active' | 'sealed' | 'standby'
}

/** The `auth` member of an answer. Durations in milliseconds. */
export interface AuthAnswer {
  readonly clientToken: Secret
  readonly accessor: string
  readonly policies: readonly string[]
  readonly tokenPolicies: readonly string[]
  readonly identityPolicies: readonly string[]
  readonly metadata: Readonly<Record<string, string>> | undefined
  readonly leaseDurationMs: number
  readonly renewable: boolean
  readonly entityId: string
  readonly tokenType: 'service' | 'batch'
  readonly orphan: boolean
  readonly numUses: number
}
