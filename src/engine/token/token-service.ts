import type { Secret } from '../../lib/secret.ts'
import type { Worker } from '../../lib/worker.ts'
import type { Login, Mount } from '../backend.ts'
import type { AuthAnswer, Remote } from '../request.ts'
import type { LiveToken } from './token-record.ts'

export type { LiveToken } from './token-record.ts'

/** A new token's answer with what the caller should know about it. */
export interface Issued {
  readonly auth: AuthAnswer
  readonly warnings: readonly string[]
}

/** What a caller asks of a token made from its own (CONTRACT 5.1); checked already against what the caller may. */
export interface TokenWish {
  /** Empty: those of the parent. */
  readonly policies: readonly string[]
  readonly noDefaultPolicy: boolean
  readonly orphan: boolean
  readonly id?: Secret
  readonly metadata: Readonly<Record<string, string>>
  readonly displayName: string
  readonly ttlMs: number
  readonly explicitMaxTtlMs: number
  readonly periodMs: number
  readonly numUses: number
  readonly renewable: boolean
}

export interface TokenService {
  /** Key and record of a live token; undefined for unknown, expired and revoked ones. One read of the store. */
  lookup(token: Secret): Promise<LiveToken | undefined>
  /** The same by record key; a token in its last request is still found. */
  find(key: string): Promise<LiveToken | undefined>
  findByAccessor(accessor: string): Promise<LiveToken | undefined>
  /** Counts one use down, or throws `denied` when none is left. */
  spend(live: LiveToken): Promise<LiveToken>
  /** To be called after the request: revokes the token when that was its last use. */
  spent(live: LiveToken): Promise<void>
  /** A token that may everything and never ends. */
  issueRoot(): Promise<Secret>
  /** The controller's token; revokes the one before. */
  issueController(): Promise<Secret>
  issueLogin(mount: Mount, login: Login, remote: Remote, requestPath: string): Promise<Issued>
  /** A child (or an orphan) of a live token; `mount` is the token mount, whose limits hold. */
  create(parentKey: string, wish: TokenWish, mount: Mount, requestPath: string): Promise<Issued>
  /** Lengthens a life; `token` is told again in the answer where the caller sent it. `mount` is the token mount. */
  renew(
    live: LiveToken,
    options: { incrementMs: number; token: Secret | undefined; mount: Mount; signal: AbortSignal },
  ): Promise<Issued>
  /** Revokes a token and all that stem from it. Once it resolves none of them can be used. An absent one is fine. */
  revokeTree(key: string): Promise<void>
  /** Revokes a token; its children live on without a parent. */
  revokeOrphaning(key: string): Promise<void>
  /** Accessors in order, for paging. */
  accessors(options: { after?: string; limit: number }): Promise<string[]>
  readonly worker: Worker
}
