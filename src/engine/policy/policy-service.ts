import type { Caller } from '../backend.ts'
import type { Operation } from '../request.ts'

/** What `decide` has to know of a request. */
export interface PolicyRequest {
  readonly path: string
  readonly operation: Operation
  /** Asked only where the answer depends on it. */
  readonly exists: () => Promise<boolean>
  readonly fields: Readonly<Record<string, unknown>>
  readonly needsSudo: boolean
}

export interface PolicyService {
  /** One answer for one request of a caller with these policies. */
  decide(policies: readonly string[], request: PolicyRequest): Promise<{ allowed: boolean; isRoot: boolean }>
  /** What these policies allow on a path: sorted, `["root"]`, or `["deny"]` for nothing. */
  capabilities(policies: readonly string[], path: string): Promise<string[]>
  /** Names, sorted, with `default` and `root`. */
  list(): Promise<string[]>
  read(name: string): Promise<{ name: string; text: string; owner?: string } | undefined>
  /** Writes a policy given as HCL, JSON or base64 of either; `invalid` with the line of the first fault. */
  put(name: string, text: string, caller: Caller): Promise<void>
  /** Removes a policy; one that is absent is fine. */
  delete(name: string, caller: Caller): Promise<void>
}
