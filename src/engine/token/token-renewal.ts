import type { Clock } from '../../lib/clock.ts'
import { invalid } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import type { Login, Mount } from '../backend.ts'
import { VersionConflict } from '../storage/driver.ts'
import { put, type Store } from '../storage/store.ts'
import { samePolicies, tokenPolicies } from './token-policies.ts'
import { dueOf, type LiveToken, type TokenRecord, tokenKind } from './token-record.ts'
import { decideTtl } from './ttl.ts'

export interface RenewOptions {
  readonly incrementMs: number
  /** The token itself, where the caller sent it. */
  readonly token: Secret | undefined
  readonly mount: Mount
  readonly signal: AbortSignal
}

export interface TokenRenewalDeps {
  readonly store: Store
  readonly clock: Clock
  readonly mounts: (id: string) => Promise<Mount | undefined>
  readonly systemMaxTtlMs: number
  /** Repeats the login of a token; undefined where the backend knows no renewal. */
  readonly renewLogin: (
    mount: Mount,
    renewal: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ) => Promise<Login | undefined>
}

/**
 * Renewal of tokens. One that stems from a login is renewed only if that login would give the same policies now; while the directory
 * cannot be asked the answer is `unavailable`, and the token stays as it is.
 */
export function createTokenRenewal(deps: TokenRenewalDeps) {
  const { store, clock } = deps

  /** The login of a token asked again; undefined for tokens that no login made. */
  async function askAgain(
    { record }: LiveToken,
    signal: AbortSignal,
  ): Promise<{ mount: Mount; login: Login } | undefined> {
    if (!record.renewal) return undefined
    const mount = record.mountId === undefined ? undefined : await deps.mounts(record.mountId)
    if (!mount) throw invalid('lease is not renewable: its auth mount is gone')
    const login = await deps.renewLogin(mount, record.renewal, signal)
    if (!login) throw invalid('lease is not renewable')
    const policies = tokenPolicies([...login.token.policies, ...login.policies], {
      noDefault: login.token.noDefaultPolicy,
      root: 'refused',
      field: 'token_policies',
    })
    if (!samePolicies(policies, record.policies)) throw invalid('policies have changed, not renewing')
    return { mount, login }
  }

  return {
    async renew(
      live: LiveToken,
      { incrementMs, mount: tokenMount, signal }: RenewOptions,
    ): Promise<{ record: TokenRecord; ttlMs: number; warnings: readonly string[] }> {
      if (!live.record.renewable || !live.record.expiresAt) throw invalid('lease is not renewable')
      const again = await askAgain(live, signal)
      const mount = again?.mount ?? tokenMount
      for (let { record, version } = live; ; ) {
        const now = clock.now()
        // Asking took time, and so did whoever was first.
        if (record.state !== 'live' || !record.expiresAt || record.expiresAt <= now) throw invalid('lease expired')
        // Of a login the settings of today hold, but for the explicit maximum, which the token was given for life.
        const settings = again?.login.token ?? record
        const { ttlMs, warnings } = decideTtl({
          requestedMs: incrementMs,
          roleTtlMs: settings.ttlMs,
          roleMaxMs: settings.maxTtlMs,
          explicitMaxMs: record.explicitMaxTtlMs,
          periodMs: settings.periodMs,
          mountDefaultMs: mount.defaultLeaseTtlMs,
          mountMaxMs: mount.maxLeaseTtlMs,
          systemMaxMs: deps.systemMaxTtlMs,
          ageMs: now.getTime() - record.issuedAt.getTime(),
        })
        const renewed: TokenRecord = {
          ...record,
          lastRenewedAt: now,
          expiresAt: new Date(now.getTime() + ttlMs),
          ...(again && {
            periodMs: again.login.token.periodMs,
            maxTtlMs: again.login.token.maxTtlMs,
            renewal: { ...again.login.renewal },
          }),
        }
        try {
          await store.commit([put(tokenKind, live.key, renewed, { expected: version, ...dueOf(renewed) })])
          return { record: renewed, ttlMs, warnings }
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
        }
        const stored = await store.read(tokenKind, live.key)
        if (!stored) throw invalid('lease expired')
        record = stored.value
        version = stored.version
      }
    },
  }
}
