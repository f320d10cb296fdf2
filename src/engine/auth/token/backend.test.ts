import { beforeEach, describe, expect, it, test } from 'vitest'
import { beforeCommits, openEngineStore } from '../../../../test/support/engine-store.ts'
import { TestClock } from '../../../../test/support/test-clock.ts'
import { unavailable } from '../../../lib/errors.ts'
import { createLogger } from '../../../lib/log.ts'
import { systemRandom } from '../../../lib/random.ts'
import type { Secret } from '../../../lib/secret.ts'
import type { AuthAnswer, ContentAnswer, EngineAnswer } from '../../../schema/answer.ts'
import { createAudit } from '../../audit/audit.ts'
import type { Backend } from '../../backend.ts'
import { createDoor } from '../../handle.ts'
import { createIdentityService } from '../../identity/identity-service.ts'
import { MountTable } from '../../mount/mount-table.ts'
import { createPolicyService } from '../../policy/policy-service.ts'
import type { EngineDoor, Operation, Remote } from '../../request.ts'
import { createMemoryDriver } from '../../storage/memory.ts'
import { capabilityRoutes } from '../../sys/capabilities.ts'
import { policyRoutes } from '../../sys/policies.ts'
import { createTokenService } from '../../token/token-service.ts'
import { createTokenBackend } from './backend.ts'

// The whole door with the token and policy endpoints behind it, over a store in memory.

const tcp: Remote = { address: '192.0.2.7', transport: 'tcp' }
let clock: TestClock
let door: EngineDoor
let root: Secret
let controller: Secret
/** What happens at each commit of the store. */
let committing: () => Promise<void>

beforeEach(async () => {
  clock = new TestClock()
  committing = async () => undefined
  const driver = beforeCommits(createMemoryDriver(), () => committing())
  const { store, barrier } = await openEngineStore(clock, driver)
  const log = createLogger({ level: 'silent' })
  const backends = new Map<string, Backend>()
  const mounts = new MountTable(store, backends, systemRandom)
  const policies = createPolicyService({ store })
  const tokens = createTokenService({
    store,
    barrier,
    clock,
    random: systemRandom,
    log,
    identity: createIdentityService({ store, random: systemRandom }),
    mounts: (id) => mounts.byId(id),
    systemMaxTtlMs: 768 * 3_600_000,
    renewLogin: async () => undefined,
  })
  backends.set('auth/token', createTokenBackend({ tokens, policies, clock }))
  backends.set('system/system', {
    type: 'system',
    routes: [...policyRoutes({ policies }), ...capabilityRoutes({ policies, tokens })],
  })
  await mounts.ensure([])
  door = createDoor({ mounts, tokens, policies, audit: createAudit(undefined, barrier), clock, log })
  root = await tokens.issueRoot()
  controller = await tokens.issueController()
})

interface Ask {
  readonly token?: Secret
  readonly remote?: Remote
  readonly owner?: string
}
async function ask(
  operation: Operation,
  path: string,
  fields: Record<string, unknown> = {},
  { token = root, remote = tcp, owner }: Ask = {},
): Promise<EngineAnswer> {
  const request = {
    id: 'r',
    operation,
    path,
    token,
    dialect: 'envelope' as const,
    fields,
    remote,
    ...(owner !== undefined && { owner }),
  }
  return door.handle(request, new AbortController().signal)
}
function content(answer: EngineAnswer): ContentAnswer {
  if (answer.kind !== 'content') throw new Error(`the answer is ${answer.kind}`)
  return answer
}
const data = async (...asked: Parameters<typeof ask>) => content(await ask(...asked)).data ?? {}
async function create(fields: Record<string, unknown> = {}, more: Ask = {}, path = 'auth/token/create') {
  const { auth } = content(await ask('write', path, fields, more))
  if (!auth) throw new Error('no token in the answer')
  return auth
}
const writePolicy = (name: string, ...rules: readonly [string, readonly string[]][]) =>
  ask('write', `sys/policies/acl/${name}`, {
    policy: JSON.stringify({
      path: Object.fromEntries(rules.map(([path, capabilities]) => [path, { capabilities }])),
    }),
  })
const isDead = (auth: AuthAnswer) =>
  ask('read', 'auth/token/lookup-self', {}, { token: auth.clientToken }).then(
    () => false,
    () => true,
  )

describe('auth/token', () => {
  it('answers the last use of a token also when the store fails right after it', async () => {
    const auth = await create({ num_uses: 1 })
    let commits = 0
    committing = async () => {
      commits += 1
      if (commits > 1) throw unavailable('the disk is full')
    }
    const answer = await ask('read', 'auth/token/lookup-self', {}, { token: auth.clientToken })
    expect([answer.kind, commits]).toEqual(['content', 2])
    committing = async () => undefined
    expect(await isDead(auth)).toBe(true)
  })

  it('lookup-self tells all about a token', async () => {
    const auth = await create({ policies: 'x,y', ttl: '20m', display_name: 'terraform', meta: { team: 'a' } })
    await clock.advance(1_000)
    const token = auth.clientToken
    expect(await data('read', 'auth/token/lookup-self', {}, { token })).toEqual({
      id: token,
      accessor: auth.accessor,
      policies: ['default', 'x', 'y'],
      path: 'auth/token/create',
      meta: { team: 'a' },
      display_name: 'token-terraform',
      num_uses: 0,
      orphan: false,
      creation_time: 1767225600,
      creation_ttl: 1200,
      issue_time: new Date('2026-01-01T00:00:00Z'),
      expire_time: new Date('2026-01-01T00:20:00Z'),
      ttl: 1199,
      explicit_max_ttl: 0,
      entity_id: '',
      type: 'service',
      renewable: true,
    })
  })

  it('lookup takes a token, lookup-accessor does not tell it', async () => {
    const auth = await create({ policies: ['x'] })
    const byToken = await data('write', 'auth/token/lookup', { token: auth.clientToken.reveal() })
    expect(byToken['id']).toEqual(auth.clientToken)
    const byAccessor = await data('write', 'auth/token/lookup-accessor', { accessor: auth.accessor })
    expect(byAccessor).toEqual({ ...byToken, id: '' })
    expect(await data('write', 'auth/token/lookup')).toMatchObject({ display_name: 'root', expire_time: null, ttl: 0 })
  })

  test.each([
    { path: 'lookup', fields: { token: 'kts.gone' }, kind: 'denied', fragment: 'bad token' },
    { path: 'lookup-accessor', fields: { accessor: 'gone' }, kind: 'denied', fragment: 'invalid accessor' },
    { path: 'lookup-accessor', fields: {}, kind: 'invalid', fragment: 'accessor' },
    { path: 'renew', fields: { token: 'kts.gone' }, kind: 'denied', fragment: 'bad token' },
    { path: 'renew', fields: {}, kind: 'invalid', fragment: 'token' },
    { path: 'renew-self', fields: {}, kind: 'invalid', fragment: 'lease is not renewable' },
    { path: 'renew-self', fields: { increment: 'soon' }, kind: 'invalid', fragment: 'increment' },
    { path: 'revoke', fields: {}, kind: 'invalid', fragment: 'token' },
    { path: 'revoke-accessor', fields: {}, kind: 'invalid', fragment: 'accessor' },
    { path: 'revoke-orphan', fields: {}, kind: 'invalid', fragment: 'token' },
    { path: 'create', fields: { type: 'batch' }, kind: 'invalid', fragment: 'type' },
    { path: 'create', fields: { type: 'x' }, kind: 'invalid', fragment: 'type' },
    { path: 'create', fields: { ttl: 'x' }, kind: 'invalid', fragment: 'ttl' },
    { path: 'create', fields: { num_uses: -1 }, kind: 'invalid', fragment: 'num_uses' },
    { path: 'create', fields: { renewable: 'perhaps' }, kind: 'invalid', fragment: 'renewable' },
    { path: 'create', fields: { meta: { a: {} } }, kind: 'invalid', fragment: 'meta' },
    { path: 'create', fields: { id: 'a b' }, kind: 'invalid', fragment: 'id' },
    { path: 'create', fields: { entity_alias: 'x' }, kind: 'invalid', fragment: 'entity_alias' },
    { path: 'create', fields: { policies: 'keyturn-controller' }, kind: 'invalid', fragment: 'policies' },
  ])('$path refuses $fields', async ({ path, fields, kind, fragment }) => {
    await expect(ask('write', `auth/token/${path}`, fields)).rejects.toMatchObject({
      kind,
      message: expect.stringContaining(fragment),
    })
  })

  it('create is for those who may, within what they have', async () => {
    await writePolicy('maker', ['auth/token/create', ['update']], ['auth/token/create-orphan', ['update']])
    const token = (await create({ policies: ['maker'] })).clientToken
    const plain = (await create({ policies: ['x'] })).clientToken
    await expect(create({}, { token: plain })).rejects.toMatchObject({ kind: 'denied' })
    expect((await create({}, { token })).policies).toEqual(['default', 'maker'])
    for (const fields of [{ policies: ['x'] }, { id: 'mine' }, { period: '1h' }, { no_parent: true }])
      await expect(create(fields, { token }), JSON.stringify(fields)).rejects.toMatchObject({ kind: 'invalid' })
    const orphan = await create({ no_parent: true }, { token }, 'auth/token/create-orphan')
    expect(orphan.orphan).toBe(true)
  })

  it('create with sudo goes beyond, but never to root', async () => {
    await writePolicy('maker', ['auth/token/create', ['update', 'sudo']])
    const token = (await create({ policies: ['maker'] })).clientToken
    const auth = await create({ policies: ['x'], period: '1h', no_parent: true, id: 'mine' }, { token })
    expect(auth).toMatchObject({ policies: ['default', 'x'], orphan: true, leaseDurationMs: 3_600_000 })
    await expect(create({ policies: ['root'] }, { token })).rejects.toMatchObject({ kind: 'invalid' })
  })

  it('create says when a life was cut', async () => {
    const answer = content(await ask('write', 'auth/token/create', { policies: ['x'], ttl: '9000h' }))
    expect(answer.warnings).toEqual([expect.stringContaining('capped')])
  })

  it('renews by token, by accessor and of itself', async () => {
    const { clientToken: token, accessor } = await create({ policies: ['x'], ttl: '1h' })
    for (const [path, fields, more] of [
      ['renew-self', {}, { token }],
      ['renew', { token: token.reveal() }, {}],
      ['renew-accessor', { accessor }, {}],
    ] as const) {
      const { auth } = content(await ask('write', `auth/token/${path}`, { ...fields, increment: 7200 }, more))
      expect(auth).toMatchObject({ leaseDurationMs: 7_200_000, accessor, renewable: true })
      expect(auth?.clientToken.reveal()).toBe(path === 'renew-accessor' ? '' : token.reveal())
    }
  })

  it('revokes by token, by accessor and of itself; what is dead is no error', async () => {
    const [one, two, three] = [await create({ policies: 'x' }), await create({ policies: 'x' }), await create()]
    await ask('write', 'auth/token/revoke', { token: one.clientToken.reveal() })
    await ask('write', 'auth/token/revoke-accessor', { accessor: two.accessor })
    await ask('write', 'auth/token/revoke-self', {}, { token: three.clientToken })
    expect(await Promise.all([one, two, three].map(isDead))).toEqual([true, true, true])
    expect(await ask('write', 'auth/token/revoke', { token: one.clientToken.reveal() })).toMatchObject({
      kind: 'empty',
    })
    expect(await ask('write', 'auth/token/revoke-accessor', { accessor: two.accessor })).toMatchObject({
      kind: 'empty',
    })
    await expect(ask('write', 'auth/token/revoke-self', {}, { token: three.clientToken })).rejects.toMatchObject({
      kind: 'denied',
    })
  })

  it('revoke takes children along, revoke-orphan leaves them and needs sudo', async () => {
    const parent = await create()
    const child = await create({}, { token: parent.clientToken })
    const grandchild = await create({}, { token: child.clientToken })
    await writePolicy('update', ['auth/token/*', ['update']])
    const token = (await create({ policies: 'update' })).clientToken
    const fields = { token: parent.clientToken.reveal() }
    await expect(ask('write', 'auth/token/revoke-orphan', fields, { token })).rejects.toMatchObject({ kind: 'denied' })
    await ask('write', 'auth/token/revoke-orphan', fields)
    expect(await Promise.all([parent, child, grandchild].map(isDead))).toEqual([true, false, false])
    await ask('write', 'auth/token/revoke', { token: child.clientToken.reveal() }, { token })
    expect(await isDead(grandchild)).toBe(true)
  })

  it('serves a token with two uses twice, also about itself', async () => {
    const { clientToken: token } = await create({ policies: 'x', num_uses: 2 })
    const self = () => data('read', 'auth/token/lookup-self', {}, { token })
    expect(await self()).toMatchObject({ num_uses: 1 })
    expect(await self()).toMatchObject({ num_uses: 0 })
    await expect(self()).rejects.toMatchObject({ kind: 'denied' })
  })

  it('lists accessors in pages, to those with sudo', async () => {
    for (let i = 0; i < 4; i++) await create({ policies: 'x' })
    const first = content(await ask('list', 'auth/token/accessors', { limit: 4 }))
    expect(first.warnings).toEqual([expect.stringContaining(`after=${first.keys?.at(-1)}`)])
    const rest = content(await ask('list', 'auth/token/accessors', { limit: 4, after: first.keys?.at(-1) }))
    // Those of root and of the controller are among them.
    expect([...(first.keys ?? []), ...(rest.keys ?? [])]).toHaveLength(6)
    expect(rest.warnings).toEqual([])
    await writePolicy('list', ['auth/token/accessors', ['list']])
    const { clientToken: token } = await create({ policies: 'list' })
    await expect(ask('list', 'auth/token/accessors', {}, { token })).rejects.toMatchObject({ kind: 'denied' })
  })

  it('the controller cannot make tokens, nor be used from afar', async () => {
    const unix: Remote = { address: '', transport: 'unix' }
    const near = { token: controller, remote: unix }
    await expect(ask('write', 'auth/token/create', {}, near)).rejects.toMatchObject({ kind: 'denied' })
    expect(await data('read', 'auth/token/lookup-self', {}, near)).toMatchObject({ policies: ['keyturn-controller'] })
    await expect(ask('read', 'auth/token/lookup-self', {}, { token: controller })).rejects.toMatchObject({
      kind: 'denied',
    })
  })
})

describe('sys/policies/acl', () => {
  it('writes, reads, lists and deletes', async () => {
    const policy = 'path "a/*" { capabilities = ["read"] }'
    expect(await ask('write', 'sys/policies/acl/Team', { policy })).toMatchObject({ kind: 'empty' })
    expect(await data('read', 'sys/policies/acl/team')).toMatchObject({ name: 'team', policy })
    expect(await data('read', 'sys/policy/team')).toEqual({ name: 'team', rules: policy })
    expect(content(await ask('list', 'sys/policies/acl'))).toMatchObject({
      shape: 'listing',
      keys: ['default', 'root', 'team'],
    })
    const names = ['default', 'root', 'team']
    expect(await data('read', 'sys/policy')).toEqual({ keys: names, policies: names })
    expect(await data('list', 'sys/policy')).toEqual({ keys: names, policies: names })
    expect(await ask('delete', 'sys/policies/acl/team')).toMatchObject({ kind: 'empty' })
    expect(await ask('delete', 'sys/policies/acl/team')).toMatchObject({ kind: 'empty' })
    expect(await ask('read', 'sys/policies/acl/team')).toMatchObject({ kind: 'absent' })
  })

  it('takes the older spelling', async () => {
    await ask('write', 'sys/policy/old', { rules: 'path "a" { policy = "read" }' })
    expect(await data('read', 'sys/policies/acl/old')).toMatchObject({ policy: 'path "a" { policy = "read" }' })
  })

  test.each([
    { operation: 'write', name: 'p', fields: {}, fragment: 'policy must not be empty' },
    { operation: 'write', name: 'p', fields: { policy: ' ' }, fragment: 'policy must not be empty' },
    { operation: 'write', name: 'p', fields: { policy: '\npath "x"' }, fragment: 'line 2' },
    { operation: 'write', name: 'root', fields: { policy: 'path "x" { policy = "read" }' }, fragment: '"root"' },
    { operation: 'delete', name: 'root', fields: {}, fragment: '"root"' },
    { operation: 'delete', name: 'default', fields: {}, fragment: '"default"' },
  ] as const)('$operation of $name refuses $fields', async ({ operation, name, fields, fragment }) => {
    await expect(ask(operation, `sys/policies/acl/${name}`, fields)).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(fragment),
    })
  })

  it('of a resource are changed by that resource only', async () => {
    const policy = 'path "a" { policy = "read" }'
    const unix: Remote = { address: '', transport: 'unix' }
    await ask('write', 'sys/policies/acl/p', { policy }, { token: controller, remote: unix, owner: 'cr:1' })
    expect(await data('read', 'sys/policies/acl/p')).toMatchObject({ owner: 'cr:1' })
    await expect(ask('write', 'sys/policies/acl/p', { policy })).rejects.toThrow('cr:1')
    await expect(ask('delete', 'sys/policies/acl/p')).rejects.toThrow('cr:1')
  })
})

describe('sys/capabilities', () => {
  it('says what the caller, a token or an accessor may', async () => {
    await writePolicy('p', ['a/*', ['read', 'list']])
    const { clientToken: token, accessor } = await create({ policies: 'p' })
    const want = { 'a/x': ['list', 'read'], b: ['deny'], capabilities: ['list', 'read'] }
    const paths = ['a/x', 'b']
    expect(await data('write', 'sys/capabilities-self', { paths }, { token })).toEqual(want)
    expect(await data('write', 'sys/capabilities', { paths, token: token.reveal() })).toEqual(want)
    expect(await data('write', 'sys/capabilities-accessor', { paths, accessor })).toEqual(want)
    expect(await data('write', 'sys/capabilities-self', { path: 'b' })).toEqual({ b: ['root'], capabilities: ['root'] })
  })

  test.each([
    { path: 'capabilities-self', fields: {}, kind: 'invalid' },
    { path: 'capabilities', fields: { paths: 'a' }, kind: 'invalid' },
    { path: 'capabilities', fields: { paths: 'a', token: 'x' }, kind: 'denied' },
    { path: 'capabilities-accessor', fields: { paths: 'a' }, kind: 'invalid' },
    { path: 'capabilities-accessor', fields: { paths: 'a', accessor: 'x' }, kind: 'denied' },
  ])('$path refuses $fields', async ({ path, fields, kind }) => {
    await expect(ask('write', `sys/${path}`, fields)).rejects.toMatchObject({ kind })
  })
})
