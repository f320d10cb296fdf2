import type { Secret } from '../../lib/secret.ts'

/** Who an object belongs to; garbage collection follows it. */
export interface OwnerReference {
  readonly apiVersion: string
  readonly kind: string
  readonly name: string
  readonly uid: string
}

/** A whole output Secret as it shall be; keys left out that we wrote earlier are removed. */
export interface SecretWriteRequest {
  readonly namespace: string
  readonly name: string
  readonly type: string
  readonly data: ReadonlyMap<string, Secret>
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly ownerReference?: OwnerReference
  /** The uid of the Secret that we made (or merged into) before, from the resource's status. */
  readonly uid?: string
  /** `Create`: the Secret is ours alone. `Merge`: it must exist and we own only our keys of it. */
  readonly mode: 'Create' | 'Merge'
}

/** What became of a write. Everything but `written` changed nothing. */
export type SecretWriteResult =
  | { readonly result: 'written'; readonly uid: string; readonly resourceVersion: string }
  /** Somebody else's Secret has this name, or somebody else's key would be overwritten. */
  | { readonly result: 'not-owned'; readonly message: string }
  /** Mode `Merge` and no such Secret. */
  | { readonly result: 'missing'; readonly message: string }
  | { readonly result: 'forbidden'; readonly message: string }
  | { readonly result: 'namespace-terminating'; readonly message: string }
