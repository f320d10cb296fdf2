import type { Secret } from '../lib/secret.ts'
import type { Worker } from '../lib/worker.ts'
import type { AuthAnswer, ContentAnswer } from '../schema/answer.ts'
import type { WireBody } from '../schema/wire.ts'
import type { Remote } from './request.ts'

/**
 * What a backend is: a list of routes, tried in order, and the background work that belongs to them. A backend never sees HTTP, never
 * checks a policy and never writes the audit log: `handle.ts` does that for all of them.
 */
export interface Backend {
  /** Type of mount it serves: `ldap` (secrets), `ldap` (auth), `token`, `system`. */
  readonly type: string
  readonly routes: readonly Route[]
  /** Runs while the engine runs, over all mounts of this type. */
  readonly workers?: readonly Worker[]
  /** Asks again for a token made by a login of this backend that is being renewed; throws when the login would be refused now. */
  renewLogin?(mount: Mount, renewal: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Login>
  /** Whether somebody has configured a mount of this type. */
  isConfigured?(mount: Mount): Promise<boolean>
  /** Names under which nobody may log in at the moment, for failures; and forgets the failures of one. */
  lockedLogins?(mount: Mount): Promise<readonly string[]>
  unlockLogin?(mount: Mount, name: string): Promise<void>
  /** Called when a mount of this type is removed and nobody finds it any more, more than once: forget all it owns. */
  unmount?(mount: Mount, signal: AbortSignal): Promise<void>
}

/** A place in the path space with a backend behind it. */
export interface Mount {
  readonly id: string
  readonly class: 'secret' | 'auth' | 'system'
  readonly type: string
  /** With trailing slash: `ldap/`, `auth/ldap/`, `sys/`. */
  readonly path: string
  readonly accessor: string
  readonly description: string
  /** 0: the system's. */
  readonly defaultLeaseTtlMs: number
  readonly maxLeaseTtlMs: number
  /** Lock-out of an auth mount's password logins. */
  readonly lockout: {
    readonly threshold: number
    readonly durationMs: number
    readonly counterResetMs: number
    readonly disabled: boolean
  }
  /** `unauth`: also shown to who has no token. */
  readonly listingVisibility?: '' | 'hidden' | 'unauth'
  /** Of an auth mount: the type of its tokens where a login's own settings say none. */
  readonly tokenType?: 'service' | 'default-service'
  /** Made at the first start. */
  readonly isDefault?: boolean
  /** Where it stood before it was put at its path. */
  readonly movedFrom?: string
  /** Who owns the mount's configuration, `cr:<uid>`; absent when made through `/v1`. */
  readonly owner?: string
}

/** Who asks, as far as a handler may know. */
export interface Caller {
  /** Display name of the token (`ldap-bob`), `root`, `kubernetes:<namespace>`; empty when unauthenticated. */
  readonly displayName: string
  readonly entityId: string
  readonly policies: readonly string[]
  readonly tokenAccessor: string
  /** Record key of the token (its keyed hash); empty when unauthenticated. */
  readonly tokenKey: string
  /** The token itself, for answers that tell it again (`lookup-self`, `renew-self`). */
  readonly token?: Secret
  /** The tenant, where the controller asks for one: `kubernetes:<namespace>`. */
  readonly principal?: string
  /** The resource on whose behalf the controller writes: `cr:<uid>`. */
  readonly owner?: string
  readonly isController: boolean
}

export interface Call<F = Record<string, never>> {
  readonly mount: Mount
  /** Captures of the route's pattern. */
  readonly params: Readonly<Record<string, string>>
  /** The fields that were supplied, parsed; path captures win over body fields. */
  readonly fields: Partial<F>
  readonly caller: Caller
  readonly remote: Remote
  readonly requestId: string
  readonly signal: AbortSignal
  /** Aborted when nobody is there any more to hear the answer; who has begun something ends it all the same. */
  readonly gone?: AbortSignal
  /** Adds a warning to the answer (dropped where there is no body). */
  warn(text: string): void
}

/** What a handler answers. `undefined`: done (write, delete) or absent (read, list). */
export type Reply =
  | undefined
  | Pick<ContentAnswer, 'shape' | 'data' | 'health'>
  | { readonly keys: readonly string[]; readonly shape: 'keys' | 'listing' }
  | { readonly login: Login }
  | { readonly auth: AuthAnswer }

/** A successful login: the pipeline makes the token from it. */
export interface Login {
  readonly aliasName: string
  readonly groupAliases: readonly string[]
  readonly displayName: string
  readonly metadata: Readonly<Record<string, string>>
  readonly policies: readonly string[]
  readonly token: TokenSettings
  /** Kept sealed with the token for its renewal; only the backend reads it. */
  readonly renewal: Readonly<Record<string, string>>
}

/** The `token_*` settings of a mount or role. Durations in milliseconds, 0 for unset. */
export interface TokenSettings {
  readonly ttlMs: number
  readonly maxTtlMs: number
  readonly explicitMaxTtlMs: number
  readonly periodMs: number
  readonly policies: readonly string[]
  readonly noDefaultPolicy: boolean
  readonly numUses: number
  readonly boundCidrs: readonly string[]
  readonly type: 'service' | 'batch' | 'default'
}

export type Handler<F> = (call: Call<F>) => Promise<Reply>

export interface RouteDefinition<F> {
  /** `config`, `groups/:name+` (`:name` one segment, `:name+` one or more, `:name*` none or more). */
  readonly pattern: string
  readonly body?: WireBody<F>
  /** Whether the object is there: decides `create` or `update` for the policy. Without it a write needs `update`. */
  readonly exists?: (call: Call<F>) => Promise<boolean>
  /**
   * The one spelling of an object's name that the handlers use, where they take several for the same (`Foo` and `foo`). The pattern has one
   * capture then. A policy about that spelling holds for all of them.
   */
  readonly sameName?: (name: string) => string
  /** Served without a token. */
  readonly unauthenticated?: boolean
  /** `allowed`: served without a token as well; who brings one must have the right. */
  readonly anonymous?: 'allowed'
  /** Tells only how the server is, and goes without audit lines. */
  readonly isProbe?: boolean
  /** Needs the `sudo` capability besides. */
  readonly sudo?: boolean
  readonly read?: Handler<F>
  readonly list?: Handler<F>
  readonly write?: Handler<F>
  readonly delete?: Handler<F>
}

/** A route whose handlers' field types have been checked against its body and forgotten. */
export type Route = RouteDefinition<Record<string, unknown>>

/** Declares a route; the handlers see the fields of `body`, parsed. */
export function route<F = Record<string, never>>(definition: RouteDefinition<F>): Route {
  // The pipeline parses the fields with this very body before it calls a handler, so the types agree.
  return definition as unknown as Route
}
