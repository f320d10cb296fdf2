import { beforeEach, describe, expect, it, test } from 'vitest'
import { beforeCommits, killedAfter, openEngineStore } from '../../../test/support/engine-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import { unavailable } from '../../lib/errors.ts'
import { createLogger } from '../../lib/log.ts'
import { systemRandom } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'
import type { Login, Mount, TokenSettings } from '../backend.ts'
import { createIdentityService } from '../identity/identity-service.ts'
import { CONTROLLER_POLICY } from '../policy/built-in.ts'
import type { StorageDriver } from '../storage/driver.ts'
import { createMemoryDriver } from '../storage/memory.ts'
import type { TokenWish } from './token-child.ts'
import { createTokenService, type LiveToken, type TokenService } from './token-service.ts'

const minute = 60_000
const hour = 60 * minute
const signal = new AbortController().signal
const remote = { address: '192.0.2.7', transport: 'tcp' } as const

const mountOf = (id: string, type: string, more: Partial<Mount> = {}): Mount => ({
  id,
  class: 'auth',
  type,
  path: `auth/${type}/`,
  accessor: `auth_${type}_1`,
  description: '',
  defaultLeaseTtlMs: 0,
  maxLeaseTtlMs: 0,
  lockout: { threshold: 5, durationMs: 0, counterResetMs: 0, disabled: false },
  ...more,
})
const tokenMount = mountOf('t', 'token')
const ldapMount = mountOf('l', 'ldap')

const settings: TokenSettings = {
  ttlMs: hour,
  maxTtlMs: 4 * hour,
  explicitMaxTtlMs: 0,
  periodMs: 0,
  policies: [],
  noDefaultPolicy: false,
  numUses: 0,
  boundCidrs: [],
  type: 'default',
}
const login = (token: Partial<TokenSettings> = {}, more: Partial<Login> = {}): Login => ({
  aliasName: 'Bob',
  groupAliases: [],
  displayName: 'bob',
  metadata: { username: 'bob' },
  policies: ['team'],
  token: { ...settings, ...token },
  renewal: { username: 'bob', password: 'planted-renewal' },
  ...more,
})
const wish: TokenWish = {
  policies: [],
  anyPolicies: false,
  noDefaultPolicy: false,
  orphan: false,
  metadata: {},
  displayName: '',
  ttlMs: 0,
  explicitMaxTtlMs: 0,
  periodMs: 0,
  numUses: 0,
  renewable: true,
}

let clock: TestClock
let driver: StorageDriver
let tokens: TokenService
let renewLogin: () => Promise<Login | undefined>

async function serviceOver(over: StorageDriver): Promise<TokenService> {
  const { store, barrier } = await openEngineStore(clock, over)
  return createTokenService({
    store,
    barrier,
    clock,
    random: systemRandom,
    log: createLogger({ level: 'silent' }),
    identity: createIdentityService({ store, random: systemRandom }),
    mounts: async (id) => [tokenMount, ldapMount].find((mount) => mount.id === id),
    systemMaxTtlMs: 768 * hour,
    renewLogin: () => renewLogin(),
  })
}

beforeEach(async () => {
  clock = new TestClock()
  driver = createMemoryDriver()
  tokens = await serviceOver(driver)
  renewLogin = async () => login()
})

async function live(token: Secret): Promise<LiveToken> {
  const found = await tokens.lookup(token)
  if (!found) throw new Error('the token is not alive')
  return found
}
const alive = async (token: Secret) => (await tokens.lookup(token)) !== undefined
const logIn = async (token: Partial<TokenSettings> = {}, more: Partial<Login> = {}) =>
  (await tokens.issueLogin(ldapMount, login(token, more), remote, 'auth/ldap/login/bob')).auth
async function childOf(parent: Secret, asked: Partial<TokenWish> = {}) {
  const { key } = await live(parent)
  return tokens.create(key, { ...wish, ...asked }, tokenMount, 'auth/token/create')
}
const renew = async (token: Secret, incrementMs = 0) =>
  tokens.renew(await live(token), { incrementMs, token, mount: tokenMount, signal })

async function recordsOf(prefix: string): Promise<number> {
  return (await driver.list(prefix, { limit: 10_000 })).length
}
/** Lets the worker do all that is due now. */
async function work(service = tokens): Promise<void> {
  while ((await service.worker.tick(signal)) === 0);
}

describe('a token', () => {
  it('is told once and kept nowhere', async () => {
    const root = await tokens.issueRoot()
    expect(root.reveal()).toMatch(/^kts\.[A-Za-z0-9]{24,}$/)
    const { record } = await live(root)
    expect(record).toMatchObject({ policies: ['root'], displayName: 'root', orphan: true, renewable: false })
    expect(record.expiresAt).toBeUndefined()
    for (const { key, value } of await driver.list('', { limit: 1000 })) {
      expect(key).not.toContain(root.reveal())
      expect(Buffer.from(value).toString('latin1')).not.toContain(root.reveal())
    }
  })

  it.each(['', 'kts.unknown', 'x'.repeat(10_000)])('that is unknown is not found (%#)', async (text) => {
    expect(await tokens.lookup(new Secret(text))).toBeUndefined()
  })

  it('of a first start that was not completed ends with the next', async () => {
    const lost = await tokens.issueRoot()
    tokens = await serviceOver(driver)
    const root = await tokens.issueRoot()
    expect([await alive(lost), await alive(root)]).toEqual([false, true])
    expect(await recordsOf('token/')).toBe(1)
  })

  it('of the controller replaces the one before, also of an earlier start', async () => {
    const first = await tokens.issueController()
    expect((await live(first)).record).toMatchObject({ policies: [CONTROLLER_POLICY], isController: true })
    tokens = await serviceOver(driver)
    const second = await tokens.issueController()
    expect([await alive(first), await alive(second)]).toEqual([false, true])
    expect(await recordsOf('token/')).toBe(1)
  })
})

describe('a login', () => {
  it('gives a token with its policies, name, entity and life', async () => {
    const { auth, warnings } = await tokens.issueLogin(
      ldapMount,
      login({ policies: ['Ops', 'team '] }),
      remote,
      'auth/ldap/login/bob',
    )
    expect(warnings).toEqual([])
    expect(auth).toMatchObject({
      policies: ['default', 'ops', 'team'],
      metadata: { username: 'bob' },
      leaseDurationMs: hour,
      renewable: true,
      orphan: true,
      numUses: 0,
    })
    const { record } = await live(auth.clientToken)
    expect(record).toMatchObject({ displayName: 'ldap-bob', path: 'auth/ldap/login/bob', mountId: 'l' })
    const again = await logIn({}, { aliasName: 'bOB' })
    expect(again.entityId).toBe(auth.entityId)
    expect((await logIn({}, { aliasName: 'alice' })).entityId).not.toBe(auth.entityId)
  })

  it('names the mount in full, and leaves default out when told so', async () => {
    const nested = { ...ldapMount, path: 'auth/corp/eu/' }
    const { auth } = await tokens.issueLogin(nested, login({ noDefaultPolicy: true }), remote, 'p')
    expect((await live(auth.clientToken)).record.displayName).toBe('corp-eu-bob')
    expect(auth.policies).toEqual(['team'])
  })

  test.each([
    { why: 'root', given: login({}, { policies: ['ROOT'] }), fragment: '"root"' },
    { why: 'response-wrapping', given: login({ policies: ['response-wrapping'] }), fragment: 'response-wrapping' },
    { why: 'the controller policy', given: login({}, { policies: [CONTROLLER_POLICY] }), fragment: CONTROLLER_POLICY },
    { why: 'batch tokens', given: login({ type: 'batch' }), fragment: 'token_type' },
    { why: 'bad networks', given: login({ boundCidrs: ['nowhere'] }), fragment: 'token_bound_cidrs' },
  ])('is refused with $why', async ({ given, fragment }) => {
    await expect(tokens.issueLogin(ldapMount, given, remote, 'p')).rejects.toThrow(fragment)
    expect(await recordsOf('token/')).toBe(0)
  })

  it('is denied from outside its networks', async () => {
    await expect(logIn({ boundCidrs: ['10.0.0.0/8'] })).rejects.toMatchObject({ kind: 'denied' })
    const { clientToken } = await logIn({ boundCidrs: ['192.0.2.0/24'] })
    expect((await live(clientToken)).record.boundCidrs).toEqual(['192.0.2.0/24'])
  })

  it('says when its life was cut', async () => {
    const short = { ...ldapMount, maxLeaseTtlMs: hour / 2 }
    const { auth, warnings } = await tokens.issueLogin(short, login(), remote, 'p')
    expect(auth.leaseDurationMs).toBe(hour / 2)
    expect(warnings).toHaveLength(1)
  })
})

describe('a child', () => {
  it('has what its parent has, and dies with it', async () => {
    const parent = await logIn()
    const { auth } = await childOf(parent.clientToken, { displayName: 'ci', ttlMs: minute })
    expect(auth).toMatchObject({ policies: ['default', 'team'], orphan: false, leaseDurationMs: minute })
    expect((await live(auth.clientToken)).record).toMatchObject({
      displayName: 'token-ci',
      entityId: parent.entityId,
      mountId: 'l',
      path: 'auth/token/create',
    })
    await tokens.revokeTree((await live(parent.clientToken)).key)
    expect(await alive(auth.clientToken)).toBe(false)
  })

  test.each([
    { why: 'a subset', asked: { policies: ['team'] }, want: ['default', 'team'] },
    { why: 'no default', asked: { policies: ['team'], noDefaultPolicy: true }, want: ['team'] },
    { why: 'inherited without default', asked: { noDefaultPolicy: true }, want: ['team'] },
    { why: 'more, where that is fine', asked: { policies: ['x'], anyPolicies: true }, want: ['default', 'x'] },
  ])('of a login: $why', async ({ asked, want }) => {
    const { clientToken } = await logIn()
    expect((await childOf(clientToken, asked)).auth.policies).toEqual(want)
  })

  test.each([
    { why: 'a policy its parent lacks', asked: { policies: ['team', 'x'] }, fragment: 'lacks x' },
    { why: 'root', asked: { policies: ['root'] }, fragment: '"root"' },
    { why: 'root, with sudo too', asked: { policies: ['root'], anyPolicies: true }, fragment: '"root"' },
    { why: 'the controller policy', asked: { policies: [CONTROLLER_POLICY], anyPolicies: true }, fragment: 'keyturn' },
  ])('of a login cannot have $why', async ({ asked, fragment }) => {
    const { clientToken } = await logIn()
    await expect(childOf(clientToken, asked)).rejects.toThrow(fragment)
  })

  it('does not get default where its parent has it not', async () => {
    const { clientToken } = await logIn({ noDefaultPolicy: true })
    expect((await childOf(clientToken, { policies: ['team'] })).auth.policies).toEqual(['team'])
  })

  it('of root is root without end, or anything with one', async () => {
    const root = await tokens.issueRoot()
    const { auth } = await childOf(root)
    expect(auth).toMatchObject({ policies: ['root'], leaseDurationMs: 0, renewable: false })
    expect((await childOf(root, { policies: ['x'] })).auth).toMatchObject({
      policies: ['default', 'x'],
      leaseDurationMs: 768 * hour,
    })
    const short = (await childOf(root, { ttlMs: minute })).auth
    expect(short).toMatchObject({ policies: ['root'], leaseDurationMs: minute })
    // A root token that ends makes none that do not.
    expect((await childOf(short.clientToken)).auth.leaseDurationMs).toBe(768 * hour)
    await expect(childOf(root, { policies: [CONTROLLER_POLICY] })).rejects.toMatchObject({ kind: 'invalid' })
  })

  it('cannot be made by a token with limited uses, nor by a dead one', async () => {
    const { clientToken } = await logIn({ numUses: 2 })
    await expect(childOf(clientToken)).rejects.toThrow('limited number of uses')
    const found = await live(clientToken)
    await tokens.revokeTree(found.key)
    await expect(tokens.create(found.key, wish, tokenMount, 'p')).rejects.toMatchObject({ kind: 'denied' })
  })

  it('keeps the networks of its parent', async () => {
    const { clientToken } = await logIn({ boundCidrs: ['192.0.2.0/24'] })
    const orphan = (await childOf(clientToken, { orphan: true })).auth
    expect((await live(orphan.clientToken)).record.boundCidrs).toEqual(['192.0.2.0/24'])
  })

  it('may be told its id, once', async () => {
    const root = await tokens.issueRoot()
    const id = new Secret('my-own-id')
    expect((await childOf(root, { id })).auth.clientToken.reveal()).toBe('my-own-id')
    await expect(childOf(root, { id })).rejects.toThrow('exists already')
  })
})

describe('uses', () => {
  it('are counted: of ten requests at once exactly three are served', async () => {
    const { clientToken } = await logIn({ numUses: 3 })
    const seen = await live(clientToken)
    const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => tokens.spend(seen)))
    const served = outcomes.flatMap((o) => (o.status === 'fulfilled' ? [o.value] : []))
    expect(served).toHaveLength(3)
    for (const outcome of outcomes)
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ kind: 'denied' })
    for (const one of served) await tokens.spent(one)
    expect(await recordsOf('token')).toBe(0)
  })

  it('end after the last one: that request still finds its token, the next does not', async () => {
    const { clientToken } = await logIn({ numUses: 1 })
    const last = await tokens.spend(await live(clientToken))
    expect(await alive(clientToken)).toBe(false)
    expect((await tokens.find(last.key))?.record.displayName).toBe('ldap-bob')
    await expect(tokens.spend(last)).rejects.toMatchObject({ kind: 'denied' })
    await tokens.spent(last)
    expect(await tokens.find(last.key)).toBeUndefined()
  })

  it('end also when the process dies in the last one', async () => {
    const { clientToken } = await logIn({ numUses: 1 })
    await tokens.spend(await live(clientToken))
    await clock.advance(3 * minute)
    await work(await serviceOver(driver))
    expect(await recordsOf('token')).toBe(0)
  })

  it('without limit cost no write', async () => {
    const root = await live(await tokens.issueRoot())
    expect(await tokens.spend(root)).toBe(root)
  })
})

describe('renewal', () => {
  it('of a login asks again and lengthens its life from now', async () => {
    const { clientToken } = await logIn()
    await clock.advance(50 * minute)
    const { auth, warnings } = await renew(clientToken)
    expect(auth).toMatchObject({ leaseDurationMs: hour, clientToken })
    expect(warnings).toEqual([])
    await clock.advance(59 * minute)
    expect(await alive(clientToken)).toBe(true)
    await clock.advance(minute)
    expect(await alive(clientToken)).toBe(false)
  })

  it('goes no further than the maximum', async () => {
    const { clientToken } = await logIn()
    for (let i = 0; i < 7; i++) {
      await clock.advance(30 * minute)
      await renew(clientToken)
    }
    const { auth, warnings } = await renew(clientToken)
    expect(auth.leaseDurationMs).toBe(30 * minute)
    expect(warnings).toEqual([expect.stringContaining('capped')])
  })

  it('takes the settings of today, but the explicit maximum of the day of issue', async () => {
    const { clientToken } = await logIn({ explicitMaxTtlMs: 3 * hour })
    renewLogin = async () => login({ ttlMs: 2 * hour, maxTtlMs: 100 * hour, explicitMaxTtlMs: 100 * hour })
    expect((await renew(clientToken)).auth.leaseDurationMs).toBe(2 * hour)
    await clock.advance(1.5 * hour)
    expect((await renew(clientToken)).auth.leaseDurationMs).toBe(1.5 * hour)
    renewLogin = async () => login({ ttlMs: 0.5 * hour, maxTtlMs: hour })
    await expect(renew(clientToken)).rejects.toThrow('past the max TTL, cannot renew')
  })

  it('keeps a periodic token alive as long as it comes', async () => {
    const { clientToken } = await logIn({ periodMs: hour })
    renewLogin = async () => login({ periodMs: hour })
    for (let i = 0; i < 20; i++) {
      await clock.advance(50 * minute)
      expect((await renew(clientToken)).auth.leaseDurationMs).toBe(hour)
    }
  })

  it('takes the increment that is asked for', async () => {
    const { clientToken } = await logIn()
    expect((await renew(clientToken, 2 * hour)).auth.leaseDurationMs).toBe(2 * hour)
  })

  test.each([
    { why: 'other policies', again: async () => login({}, { policies: ['other'] }), fragment: 'policies have changed' },
    { why: 'fewer policies', again: async () => login({}, { policies: [] }), fragment: 'policies have changed' },
    { why: 'no renewal', again: async () => undefined, fragment: 'lease is not renewable' },
  ])('is refused with $why, and the token stays', async ({ again, fragment }) => {
    const { clientToken } = await logIn()
    renewLogin = again
    await expect(renew(clientToken)).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(fragment),
    })
    expect(await alive(clientToken)).toBe(true)
  })

  it('does not mind default alone', async () => {
    const { clientToken } = await logIn()
    renewLogin = async () => login({ noDefaultPolicy: true })
    expect((await renew(clientToken)).auth.policies).toEqual(['default', 'team'])
  })

  it('while the directory is away changes nothing', async () => {
    const { clientToken } = await logIn()
    const before = await live(clientToken)
    renewLogin = async () => {
      throw unavailable('the directory cannot be reached')
    }
    await expect(renew(clientToken)).rejects.toMatchObject({ kind: 'unavailable' })
    expect(await live(clientToken)).toEqual(before)
  })

  it('of a token without a login asks nobody', async () => {
    const root = await tokens.issueRoot()
    renewLogin = async () => {
      throw new Error('asked')
    }
    const child = (await childOf(root, { policies: ['x'], ttlMs: minute })).auth
    await clock.advance(minute / 2)
    expect((await renew(child.clientToken)).auth.leaseDurationMs).toBe(minute)
    expect((await renew(child.clientToken, 10 * minute)).auth.leaseDurationMs).toBe(10 * minute)
  })

  it('is refused to what never ends or is not renewable', async () => {
    const root = await tokens.issueRoot()
    const fixed = (await childOf(root, { policies: ['x'], renewable: false })).auth
    for (const token of [root, fixed.clientToken])
      await expect(renew(token)).rejects.toMatchObject({ kind: 'invalid', message: 'lease is not renewable' })
  })

  it('does not bring back a token that ended while the directory was asked', async () => {
    const { clientToken } = await logIn()
    const { key } = await live(clientToken)
    renewLogin = async () => {
      await tokens.revokeTree(key)
      return login()
    }
    await expect(renew(clientToken)).rejects.toThrow('lease expired')
    expect(await recordsOf('token')).toBe(0)
  })
})

describe('the end of a token', () => {
  /** A root with `width` children at each of `depth` levels; all tokens made. */
  async function family(width: number, depth: number): Promise<Secret[]> {
    const all = [(await childOf(await tokens.issueRoot(), { policies: ['x'], orphan: true })).auth.clientToken]
    for (let level = all; depth > 0; depth--) {
      const next: Secret[] = []
      for (const parent of level) for (let i = 0; i < width; i++) next.push((await childOf(parent)).auth.clientToken)
      all.push(...next)
      level = next
    }
    return all
  }

  it('is the end of all that stem from it, and of nobody else', async () => {
    const others = await recordsOf('token')
    const bystander = await family(2, 1)
    const all = await family(3, 3)
    const kept = await recordsOf('token')
    await tokens.revokeTree((await live(all[0] ?? new Secret(''))).key)
    for (const token of all) expect(await alive(token)).toBe(false)
    for (const token of bystander) expect(await alive(token)).toBe(true)
    expect(others).toBe(0)
    // 40 tokens and accessors, 39 links.
    expect(kept - (await recordsOf('token'))).toBe(119)
  })

  it('takes its place in a family without disturbing the rest', async () => {
    const all = await family(2, 2)
    const [top, left, right, ...grandchildren] = await Promise.all(all.map(live))
    if (!top || !left || !right) throw new Error('too small a family')
    await tokens.revokeTree(left.key)
    const states = await Promise.all([top, left, right, ...grandchildren].map((t) => tokens.find(t.key)))
    expect(states.map((state) => state !== undefined)).toEqual([true, false, true, false, false, true, true])
    await tokens.revokeTree(top.key)
    expect(await recordsOf('token-child/')).toBe(0)
  })

  it('leaves orphans where that is asked for', async () => {
    const all = await family(2, 2)
    const [top, left, right] = await Promise.all(all.map(live))
    if (!top || !left || !right) throw new Error('too small a family')
    await tokens.revokeOrphaning(top.key)
    expect(await Promise.all(all.map(alive))).toEqual([false, true, true, true, true, true, true])
    const orphan = await tokens.find(left.key)
    expect(orphan?.record).toMatchObject({ orphan: true })
    expect(orphan?.record.parentKey).toBeUndefined()
    expect((await tokens.find(right.key))?.record.expiresAt).toEqual(right.record.expiresAt)
    await tokens.revokeTree(left.key)
    expect(await Promise.all(all.map(alive))).toEqual([false, false, true, false, false, true, true])
  })

  it('comes by itself, with children that would live longer', async () => {
    const root = await tokens.issueRoot()
    const parent = (await childOf(root, { policies: ['x'], ttlMs: minute, explicitMaxTtlMs: minute })).auth.clientToken
    const child = (await childOf(parent, { ttlMs: hour })).auth.clientToken
    const { record } = await live(parent)
    await clock.advance(minute)
    expect(await alive(parent)).toBe(false)
    expect(await tokens.findByAccessor(record.accessor)).toBeUndefined()
    await work()
    expect(await alive(child)).toBe(false)
    expect(await recordsOf('token/')).toBe(1)
    expect(await recordsOf('token-accessor/')).toBe(1)
  })

  it('does not come for a token that was renewed in time', async () => {
    const { clientToken } = await logIn()
    await clock.advance(59 * minute)
    await renew(clientToken)
    await clock.advance(2 * minute)
    await work()
    expect(await alive(clientToken)).toBe(true)
    await clock.advance(hour)
    await work()
    expect(await recordsOf('token')).toBe(0)
  })

  it('says when the worker has to look again', async () => {
    expect(await tokens.worker.tick(signal)).toBe(5_000)
    await childOf(await tokens.issueRoot(), { policies: ['x'], ttlMs: 2_000 })
    expect(await tokens.worker.tick(signal)).toBe(2_000)
  })

  it('comes for many at once', async () => {
    const root = await tokens.issueRoot()
    for (let i = 0; i < 250; i++) await childOf(root, { policies: ['x'], ttlMs: minute })
    await clock.advance(minute)
    await work()
    expect(await recordsOf('token/')).toBe(1)
    expect(await recordsOf('token-child/')).toBe(0)
  })

  it('is completed after a crash at any step; what was told dead stays dead', async () => {
    for (let steps = 0; ; steps++) {
      driver = createMemoryDriver()
      tokens = await serviceOver(driver)
      const all = await family(2, 2)
      const top = await live(all[0] ?? new Secret(''))
      const dying = await serviceOver(killedAfter(driver, steps))
      const killed = await dying.revokeTree(top.key).then(
        () => false,
        () => true,
      )
      tokens = await serviceOver(driver)
      // Nothing was marked before the first commit, so nothing has to end; from then on all of them do.
      const ends = steps > 0
      expect(await tokens.find(top.key).then((found) => found === undefined)).toBe(ends)
      await clock.advance(10_000)
      await work()
      expect(await Promise.all(all.map(alive))).toEqual(all.map(() => !ends))
      if (ends) expect(await recordsOf('token-child/')).toBe(0)
      if (!killed) {
        expect(steps).toBeGreaterThan(5)
        return
      }
    }
  })

  it('is told to nobody before it is true, not while another is at it', async () => {
    for (let stuck = 2; ; stuck++) {
      driver = createMemoryDriver()
      tokens = await serviceOver(driver)
      const all = await family(2, 3)
      const top = await live(all[0] ?? new Secret(''))
      const reached = Promise.withResolvers<'reached'>()
      const released = Promise.withResolvers<void>()
      const slow = await serviceOver(
        beforeCommits(driver, async (number) => {
          if (number === stuck) reached.resolve('reached')
          if (number >= stuck) await released.promise
        }),
      )
      const first = slow.revokeTree(top.key)
      const isStuck = (await Promise.race([reached.promise, first])) === 'reached'
      await tokens.revokeTree(top.key)
      expect(await Promise.all(all.map(alive))).toEqual(all.map(() => false))
      released.resolve()
      await first
      expect(await recordsOf('token-child/')).toBe(0)
      expect(await recordsOf('token/')).toBe(1)
      if (!isStuck) return expect(stuck).toBeGreaterThan(5)
    }
  })

  it('refuses a child to a parent that ends at the same moment', async () => {
    const parent = (await logIn()).clientToken
    const { key } = await live(parent)
    // The parent is alive when it is judged, and dead when the child would be written.
    const slow = await serviceOver(
      beforeCommits(driver, async (number) => {
        if (number === 1) await tokens.revokeTree(key)
      }),
    )
    await expect(slow.create(key, wish, tokenMount, 'p')).rejects.toMatchObject({ kind: 'denied' })
    expect(await recordsOf('token')).toBe(0)
  })

  it('finds a child that is made while others are taken', async () => {
    const parent = (await logIn()).clientToken
    const { key } = await live(parent)
    const slow = await serviceOver(
      beforeCommits(driver, async (number) => {
        if (number === 1) await tokens.create(key, wish, tokenMount, 'p')
      }),
    )
    await slow.revokeTree(key)
    expect(await recordsOf('token')).toBe(0)
  })

  it('of a child is not undone by a use of it at the same moment', async () => {
    const parent = (await logIn()).clientToken
    const child = await live((await childOf(parent, { numUses: 5 })).auth.clientToken)
    const slow = await serviceOver(
      beforeCommits(driver, async (number) => {
        if (number === 2) await tokens.spend(child)
      }),
    )
    await slow.revokeTree((await live(parent)).key)
    expect(await recordsOf('token')).toBe(0)
  })
})

describe('accessors', () => {
  it('find their token and come in pages', async () => {
    const { accessor, clientToken } = await logIn()
    for (let i = 0; i < 4; i++) await logIn()
    expect((await tokens.findByAccessor(accessor))?.key).toBe((await live(clientToken)).key)
    expect(await tokens.findByAccessor('')).toBeUndefined()
    expect(await tokens.findByAccessor('nobody')).toBeUndefined()
    const first = await tokens.accessors({ limit: 3 })
    const rest = await tokens.accessors({ limit: 3, after: first.at(-1) ?? '' })
    expect([first.length, rest.length]).toEqual([3, 2])
    expect([...first, ...rest]).toContain(accessor)
  })
})
