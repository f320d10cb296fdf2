import * as z from 'zod'
import { denied, invalid } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import { type Random, randomText } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'
import type { Worker } from '../../lib/worker.ts'
import type { AuthAnswer } from '../../schema/answer.ts'
import type { Login, Mount } from '../backend.ts'
import type { IdentityService } from '../identity/identity-service.ts'
import { CONTROLLER_POLICY } from '../policy/built-in.ts'
import type { Remote } from '../request.ts'
import type { Barrier } from '../seal/barrier.ts'
import { VersionConflict } from '../storage/driver.ts'
import { type Change, check, put, recordKind } from '../storage/store.ts'
import { cidrAllows, requireCidrs } from './cidr.ts'
import { decideChild, type TokenWish } from './token-child.ts'
import { tokenPolicies } from './token-policies.ts'
import { accessorKind, childKind, dueOf, type LiveToken, type TokenRecord, tokenKind } from './token-record.ts'
import { createTokenRenewal, type RenewOptions, type TokenRenewalDeps } from './token-renewal.ts'
import { createTokenTree, isDead } from './token-tree.ts'
import { decideTtl } from './ttl.ts'

export type { TokenWish } from './token-child.ts'
export type { LiveToken } from './token-record.ts'

/**
 * Service tokens: what is issued, what is alive, what ends when. A token is stored under its keyed hash and never as itself; whether it
 * may be used is decided by its record alone, read at every use. Ends are durable before they are told, and complete themselves after
 * a crash (token-tree.ts). Who may ask for what is checked by the routes and the policies.
 */
export interface TokenService {
  /** Key and record of a live token; undefined for unknown, expired and revoked ones. One read of the store. */
  lookup(token: Secret): Promise<LiveToken | undefined>
  /** The same by record key; a token in its last request is still found. */
  find(key: string): Promise<LiveToken | undefined>
  findByAccessor(accessor: string): Promise<LiveToken | undefined>
  /** The record key of a token, known or not. */
  keyOf(token: Secret): string
  /** The record key of an accessor's token, until all that stems from it is gone. */
  keyByAccessor(accessor: string): Promise<string | undefined>
  /** Counts one use down, or throws `denied` when none is left. */
  spend(live: LiveToken): Promise<LiveToken>
  /** To be called after the request: revokes the token when that was its last use. */
  spent(live: LiveToken): Promise<void>
  /** A token that may everything and never ends; revokes the one before, of a first start that did not come to its end. */
  issueRoot(): Promise<Secret>
  /** The controller's token; revokes the one before. */
  issueController(): Promise<Secret>
  issueLogin(mount: Mount, login: Login, remote: Remote, requestPath: string): Promise<Issued>
  /** A child (or an orphan) of a live token; `mount` is the token mount, whose limits hold. */
  create(parentKey: string, wish: TokenWish, mount: Mount, requestPath: string): Promise<Issued>
  /** Lengthens a life; `token` is told again in the answer where the caller sent it. `mount` is the token mount. */
  renew(live: LiveToken, options: RenewOptions): Promise<Issued>
  /** Revokes a token and all that stem from it. Once it resolves none of them can be used. An absent one is fine. */
  revokeTree(key: string): Promise<void>
  /** Revokes a token; its children live on without a parent. */
  revokeOrphaning(key: string): Promise<void>
  /** Accessors in order, for paging. */
  accessors(options: { after?: string; limit: number }): Promise<string[]>
  readonly worker: Worker
}

/** A token's answer with what the caller should know about it. */
interface Issued {
  readonly auth: AuthAnswer
  readonly warnings: readonly string[]
}

/** What tokens need of the rest: a store, time, chance, who is who, the mounts and their logins. */
export interface TokenServiceDeps extends TokenRenewalDeps {
  readonly barrier: Pick<Barrier, 'hash'>
  readonly random: Random
  readonly log: Logger
  readonly identity: IdentityService
}

const PREFIX = 'kts.'
const ID_LENGTH = 28
const LONGEST_ID = 256
// Longer than any request: a token in its last use outlives that use, also when the process does not.
const LAST_USE_MS = 120_000

/** Which token is the one of its kind: the controller's, and the root token of a first start. */
const aloneKind = recordKind('core/', z.object({ key: z.string() }))

type NewRecord = Partial<TokenRecord> & Pick<TokenRecord, 'policies' | 'path' | 'displayName' | 'orphan' | 'renewable'>

/** The tokens of a store. Its `worker` must run for ends to come by themselves. */
export function createTokenService(deps: TokenServiceDeps): TokenService {
  const { store, barrier, clock, random } = deps
  const tree = createTokenTree(deps)
  const renewal = createTokenRenewal(deps)

  const keyOf = (token: Secret) => barrier.hash('token', token.reveal())

  const read = async (key: string): Promise<LiveToken | undefined> => {
    const stored = await store.read(tokenKind, key)
    if (!stored || isDead(stored.value)) return undefined
    const { expiresAt } = stored.value
    if (expiresAt && expiresAt <= clock.now()) return undefined
    return { key, record: stored.value, version: stored.version }
  }

  const keyByAccessor = async (accessor: string): Promise<string | undefined> => {
    const link = accessor === '' ? undefined : await store.read(accessorKind, accessor)
    return link?.value.key
  }

  /** Writes a new token with its indexes, all or nothing; `also` are conditions and records that belong to it. */
  const insert = async (fresh: NewRecord, also: readonly Change[] = [], id?: Secret) => {
    const token = id ?? new Secret(PREFIX + randomText(random, ID_LENGTH))
    const key = keyOf(token)
    const issuedAt = clock.now()
    const record: TokenRecord = {
      accessor: randomText(random, 24),
      state: 'live',
      metadata: {},
      entityId: '',
      type: 'service',
      issuedAt,
      ttlMs: 0,
      explicitMaxTtlMs: 0,
      periodMs: 0,
      maxTtlMs: 0,
      numUses: 0,
      boundCidrs: [],
      isController: false,
      ...fresh,
      ...(fresh.ttlMs && { expiresAt: new Date(issuedAt.getTime() + fresh.ttlMs) }),
    }
    await store.commit([
      put(tokenKind, key, record, { expected: 0, ...dueOf(record) }),
      put(accessorKind, record.accessor, { key }, { expected: 0 }),
      ...(record.parentKey === undefined ? [] : [put(childKind, `${record.parentKey}/${key}`, {}, { expected: 0 })]),
      ...also,
    ])
    return { token, key, record }
  }

  /** A token of which there is one: the one before ends. */
  const issueAlone = async (name: string, fresh: NewRecord): Promise<Secret> => {
    for (;;) {
      const before = await store.read(aloneKind, name)
      // First the old one ends: were it last, a crash in between would leave it alive and forgotten.
      if (before) await tree.revoke(before.value.key)
      const token = new Secret(PREFIX + randomText(random, ID_LENGTH))
      const pointer = put(aloneKind, name, { key: keyOf(token) }, { expected: before?.version ?? 0 })
      try {
        await insert(fresh, [pointer], token)
        return token
      } catch (error) {
        if (!(error instanceof VersionConflict)) throw error
      }
    }
  }

  return {
    async lookup(token) {
      const id = token.reveal()
      if (id === '' || id.length > LONGEST_ID) return undefined
      const live = await read(keyOf(token))
      return live?.record.state === 'live' ? live : undefined
    },

    find: read,

    async findByAccessor(accessor) {
      const key = await keyByAccessor(accessor)
      return key === undefined ? undefined : read(key)
    },

    keyOf,

    keyByAccessor,

    async spend(live) {
      for (let now: LiveToken | undefined = live; now; now = await read(live.key)) {
        const { record } = now
        if (record.state !== 'live') break
        if (record.numUses === 0) return now
        const spent: TokenRecord = {
          ...record,
          numUses: record.numUses - 1,
          ...(record.numUses === 1 && {
            state: 'last-use',
            endsAt: new Date(clock.now().getTime() + LAST_USE_MS),
          }),
        }
        try {
          const change = put(tokenKind, live.key, spent, { expected: now.version, ...dueOf(spent) })
          const versions = await store.commit([change])
          return { key: live.key, record: spent, version: versions.get(live.key) ?? 0 }
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
        }
      }
      throw denied()
    },

    async spent(live) {
      if (live.record.state === 'last-use') await tree.revoke(live.key)
    },

    issueRoot: () =>
      issueAlone('root-token', {
        policies: ['root'],
        path: 'auth/token/root',
        displayName: 'root',
        orphan: true,
        renewable: false,
      }),

    issueController: () =>
      issueAlone('controller-token', {
        policies: [CONTROLLER_POLICY],
        path: 'sys/controller',
        displayName: CONTROLLER_POLICY,
        orphan: true,
        renewable: false,
        isController: true,
      }),

    async issueLogin(mount, login, remote, requestPath) {
      const settings = login.token
      if (settings.type === 'batch') throw invalid('token_type must be "service" or "default"')
      requireCidrs(settings.boundCidrs, 'token_bound_cidrs')
      if (settings.boundCidrs.length > 0 && !cidrAllows(settings.boundCidrs, remote.address)) throw denied()
      const policies = tokenPolicies([...settings.policies, ...login.policies], {
        noDefault: settings.noDefaultPolicy,
        root: 'refused',
        field: 'token_policies',
      })
      const { ttlMs, warnings } = decideTtl({
        roleTtlMs: settings.ttlMs,
        roleMaxMs: settings.maxTtlMs,
        explicitMaxMs: settings.explicitMaxTtlMs,
        periodMs: settings.periodMs,
        mountDefaultMs: mount.defaultLeaseTtlMs,
        mountMaxMs: mount.maxLeaseTtlMs,
        systemMaxMs: deps.systemMaxTtlMs,
        ageMs: 0,
      })
      const { token, record } = await insert({
        policies,
        path: requestPath,
        metadata: { ...login.metadata },
        displayName: `${mount.path.replace(/^auth\//, '').replaceAll('/', '-')}${login.displayName}`,
        entityId: await deps.identity.entityFor(mount.accessor, login.aliasName),
        ttlMs,
        explicitMaxTtlMs: settings.explicitMaxTtlMs,
        periodMs: settings.periodMs,
        maxTtlMs: settings.maxTtlMs,
        numUses: settings.numUses,
        boundCidrs: [...settings.boundCidrs],
        orphan: true,
        renewable: true,
        mountId: mount.id,
        renewal: { ...login.renewal },
      })
      return { auth: authAnswer(record, token, ttlMs), warnings }
    },

    async create(parentKey, wish, mount, requestPath) {
      for (;;) {
        const parent = await read(parentKey)
        if (!parent) throw denied()
        const { child, warnings } = decideChild(parent, wish, { mount, systemMaxMs: deps.systemMaxTtlMs })
        try {
          // The parent must still be what was judged: a child made while its parent is being revoked would outlive it.
          const condition = check(tokenKind, parent.key, parent.version)
          const { token, record } = await insert({ ...child, path: requestPath }, [condition], wish.id)
          return { auth: authAnswer(record, token, record.ttlMs), warnings }
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
          if (wish.id && (await store.read(tokenKind, keyOf(wish.id)))) throw invalid('id: this token exists already')
        }
      }
    },

    async renew(live, options) {
      const { record, ttlMs, warnings } = await renewal.renew(live, options)
      return { auth: authAnswer(record, options.token ?? new Secret(''), ttlMs), warnings }
    },

    revokeTree: tree.revoke,
    revokeOrphaning: tree.revokeOrphaning,

    accessors: (options) => store.keys(accessorKind, '', options),

    worker: tree.worker,
  }
}

function authAnswer(record: TokenRecord, clientToken: Secret, leaseDurationMs: number): AuthAnswer {
  return {
    clientToken,
    accessor: record.accessor,
    policies: record.policies,
    tokenPolicies: record.policies,
    identityPolicies: [],
    metadata: Object.keys(record.metadata).length > 0 ? record.metadata : undefined,
    leaseDurationMs,
    renewable: record.renewable,
    entityId: record.entityId,
    tokenType: 'service',
    orphan: record.orphan,
    numUses: record.numUses,
  }
}
