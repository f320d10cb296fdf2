import type { Secret } from '../../lib/secret.ts'
import type { Filter } from './filter.ts'

/**
 * The directory door: the only place that talks LDAP. It opens and reuses connections, chooses servers, puts a deadline on everything and says in
 * one word what a failure means (`errors.ts`). It knows no mount, no role and no policy; whose passwords these are is its callers' business.
 *
 * Held here: a connection that failed once is never used again and never comes back unbound; search and modify of one piece of work go to the
 * same server; nothing unescaped reaches a filter or a name; certificates signed with SHA-1 or MD5 are refused whatever TLS version is allowed.
 */
export type Schema = 'openldap' | 'ad' | 'racf'
export type TlsVersion = 'tls10' | 'tls11' | 'tls12' | 'tls13'

/** How to reach a directory; every default is already filled in. */
export interface DirectorySettings {
  /** `ldap://` or `ldaps://`, in the order to try. */
  readonly urls: readonly string[]
  /** For TCP, StartTLS and TLS of one server together. */
  readonly connectionTimeoutMs: number
  /** For each LDAP operation. */
  readonly requestTimeoutMs: number
  readonly startTls: boolean
  /** Do not verify the server's certificate at all. */
  readonly insecureTls: boolean
  readonly tlsMinVersion: TlsVersion
  readonly tlsMaxVersion: TlsVersion
  /** CA certificates, PEM; they replace the system's. */
  readonly certificate?: string
  readonly clientCertificate?: string
  readonly clientKey?: Secret
  readonly dereferenceAliases: 'never' | 'finding' | 'searching' | 'always'
  /** 0: searches are not paged. */
  readonly maxPageSize: number
}

/** A name (DN, or what the directory takes for one) and its password; both empty is anonymous. */
export interface BindIdentity {
  readonly name: string
  readonly password: Secret
}

export interface Entry {
  readonly dn: string
  /** Values as octets, by attribute name in lower case. */
  readonly attributes: ReadonlyMap<string, readonly Buffer[]>
  /** First value of an attribute as text, whatever the case of its name. */
  first(attribute: string): string | undefined
  all(attribute: string): string[]
}

export interface SearchRequest {
  readonly base: string
  readonly scope: 'base' | 'one' | 'sub'
  readonly filter: Filter
  readonly attributes: readonly string[]
  /** More entries than this are not an error: so many are returned. */
  readonly sizeLimit?: number
}

export interface AttributeChange {
  readonly attribute: string
  readonly values: readonly Buffer[]
}

/** One bound connection, held by nobody else while a piece of work uses it. Every method throws `DirectoryError`. */
export interface Session {
  /** URL of the server. */
  readonly server: string
  /** Referrals are ignored, never followed. */
  search(request: SearchRequest): Promise<Entry[]>
  /** Replaces the attributes' values in one modify request. `unknown-outcome` when no answer came. */
  replace(dn: string, changes: readonly AttributeChange[]): Promise<void>
}

/** Stands before the work and the binds of an identity whose troubles concern more than one session. */
export interface Admission {
  /** The session has a place at a server. Throws when what others have met there meanwhile makes asking it pointless. */
  entered(): void
  /** Only a bind made now tells what is asked; a connection that was bound earlier does not do. */
  readonly isProof: boolean
  /** Runs a bind, or throws instead. Aborted, it leaves whatever line it waits in. */
  bind(server: string, signal: AbortSignal, bind: () => Promise<void>): Promise<void>
  /** The session has its bound connection: what fails from now on is its work. */
  connected(): void
}

export interface SessionOptions {
  /** A connection of its own, bound now and closed afterwards: the bind itself is the proof of the password. */
  readonly fresh?: boolean
  /** Asked before the identity is bound with; a connection that was bound earlier needs no asking. */
  readonly admission?: Admission
  /** Part of a login, which waits for no other work. */
  readonly isLogin?: boolean
  /** Only this server. */
  readonly server?: string
}

export interface VerifyOptions {
  /** Only this server: who wants to know what a server was told must ask that one. One that is not among the URLs any more is not asked. */
  readonly server?: string
  /** Send a bind with a name and no password (RFC 4513, 5.1.2), which proves nothing. Otherwise such a bind is refused here. */
  readonly allowUnauthenticated?: boolean
}

export interface DirectoryDoor extends AsyncDisposable {
  /**
   * Runs work on a connection bound as `identity`. It may be begun again, at the same or another server, as long as nothing it asked was
   * answered and it has changed nothing. Throws `DirectoryError`, class `bind-refused` when the directory refuses the identity,
   * or the signal's reason.
   */
  withSession<T>(
    settings: DirectorySettings,
    identity: BindIdentity,
    signal: AbortSignal,
    work: (session: Session) => Promise<T>,
    options?: SessionOptions,
  ): Promise<T>
  /** Proves a name and password by one simple bind on a warm connection kept for that: true when accepted, false for invalid credentials. */
  verify(
    settings: DirectorySettings,
    identity: BindIdentity,
    signal: AbortSignal,
    options?: VerifyOptions,
  ): Promise<boolean>
  /** Closes what is open with these settings as soon as it is idle, and forgets which servers were down: the configuration changed. */
  forget(settings: DirectorySettings): void
}
