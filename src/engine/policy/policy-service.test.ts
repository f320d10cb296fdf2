import { beforeEach, describe, expect, it, test } from 'vitest'
import { openEngineStore } from '../../../test/support/engine-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import type { Caller } from '../backend.ts'
import type { Operation } from '../request.ts'
import { CONTROLLER_POLICY, CONTROLLER_POLICY_TEXT } from './built-in.ts'
import { createPolicyService, type PolicyService } from './policy-service.ts'
import { parsePolicy } from './policy-text.ts'

const operator: Caller = {
  displayName: 'root',
  entityId: '',
  policies: ['root'],
  tokenAccessor: '',
  tokenKey: '',
  isController: false,
}
const controllerFor = (owner: string): Caller => ({ ...operator, isController: true, owner })

let policies: PolicyService
beforeEach(async () => {
  const { store } = await openEngineStore(new TestClock())
  policies = createPolicyService({ store })
})

interface Ask {
  /** One text for each policy of the token. */
  texts: string[]
  op: Operation
  path: string
  fields?: Record<string, unknown>
  exists?: boolean
  sudo?: boolean
  want: boolean
}

async function ask({ texts, op, path, fields = {}, exists = true, sudo = false }: Omit<Ask, 'want'>) {
  const names = texts.map((_, i) => `p${i}`)
  for (const [i, text] of texts.entries()) await policies.put(`p${i}`, text, operator)
  const request = { path, operation: op, exists: async () => exists, fields, needsSudo: sudo }
  return (await policies.decide(names, request)).allowed
}

const rule = (pattern: string, capabilities: string, more = '') =>
  `path "${pattern}" { capabilities = [${capabilities.split(' ').map((c) => `"${c}"`)}] ${more} }\n`

const cases: (Ask & { why: string })[] = [
  { why: 'nothing', texts: [], op: 'read', path: 'a', want: false },
  { why: 'exact', texts: [rule('a/b', 'read')], op: 'read', path: 'a/b', want: true },
  { why: 'exact is not a prefix', texts: [rule('a/b', 'read')], op: 'read', path: 'a/bc', want: false },
  { why: 'exact minds case', texts: [rule('a/B', 'read')], op: 'read', path: 'a/b', want: false },
  { why: 'a dot is a dot', texts: [rule('a.b/*', 'read')], op: 'read', path: 'axb/c', want: false },
  { why: 'prefix', texts: [rule('a/*', 'read')], op: 'read', path: 'a/b/c', want: true },
  { why: 'prefix within a segment', texts: [rule('a/te*', 'read')], op: 'read', path: 'a/team/x', want: true },
  { why: 'prefix needs its slash', texts: [rule('a/*', 'read')], op: 'read', path: 'a', want: false },
  { why: 'everything', texts: [rule('*', 'read')], op: 'read', path: 'x/y', want: true },
  { why: 'plus is one segment', texts: [rule('a/+/c', 'read')], op: 'read', path: 'a/b/c', want: true },
  { why: 'plus is not two', texts: [rule('a/+/c', 'read')], op: 'read', path: 'a/b/b/c', want: false },
  { why: 'plus is not none', texts: [rule('a/+/c', 'read')], op: 'read', path: 'a//c', want: false },
  { why: 'plus at the end', texts: [rule('a/+', 'read')], op: 'read', path: 'a/b', want: true },
  { why: 'plus at the end is one', texts: [rule('a/+', 'read')], op: 'read', path: 'a/b/c', want: false },
  { why: 'plus first', texts: [rule('+/creds/x', 'read')], op: 'read', path: 'ldap/creds/x', want: true },
  { why: 'plus and star', texts: [rule('a/+/c/*', 'read')], op: 'read', path: 'a/b/c/d/e', want: true },
  { why: 'a plus inside a segment is a plus', texts: [rule('a/b+c', 'read')], op: 'read', path: 'a/bbc', want: false },
  { why: 'a line break is no end', texts: [rule('a/b', 'read')], op: 'read', path: 'a/b\nx', want: false },
  // Precedence
  {
    why: 'exact before prefix',
    texts: [rule('a/*', 'read') + rule('a/b', 'list')],
    op: 'read',
    path: 'a/b',
    want: false,
  },
  {
    why: 'an exact grant inside a denied prefix',
    texts: [rule('a/*', 'deny'), rule('a/b', 'read')],
    op: 'read',
    path: 'a/b',
    want: true,
  },
  {
    why: 'longer prefix first',
    texts: [rule('a/*', 'read') + rule('a/b/*', 'deny')],
    op: 'read',
    path: 'a/b/c',
    want: false,
  },
  {
    why: 'later wildcard before earlier',
    texts: [rule('a/+/c/d', 'deny') + rule('a/b*', 'read')],
    op: 'read',
    path: 'a/b/c/d',
    want: true,
  },
  {
    why: 'at one place, no star before star',
    texts: [rule('a/+', 'read') + rule('a/*', 'deny')],
    op: 'read',
    path: 'a/b',
    want: true,
  },
  {
    why: 'fewer pluses first',
    texts: [rule('a/+/+/d', 'deny') + rule('a/+/c/d', 'read')],
    op: 'read',
    path: 'a/b/c/d',
    want: true,
  },
  {
    why: 'fewer pluses also with stars',
    texts: [rule('a/+/+/*', 'deny') + rule('a/+/c/*', 'read')],
    op: 'read',
    path: 'a/b/c/d',
    want: true,
  },
  {
    why: 'longer first',
    texts: [rule('a/+/*', 'deny') + rule('a/+/c*', 'read')],
    op: 'read',
    path: 'a/b/cd',
    want: true,
  },
  {
    why: 'last, the greater text',
    texts: [rule('+/b/+', 'deny') + rule('+/+/c', 'read')],
    op: 'read',
    path: 'a/b/c',
    want: false,
  },
  {
    why: 'the same pattern in two policies: union',
    texts: [rule('a', 'read'), rule('a', 'list')],
    op: 'read',
    path: 'a',
    want: true,
  },
  {
    why: 'the same pattern, one denies',
    texts: [rule('a/*', 'read'), rule('a/*', 'deny')],
    op: 'read',
    path: 'a/b',
    want: false,
  },
  {
    why: 'different patterns are not merged',
    texts: [rule('a/*', 'read'), rule('a/b*', 'list')],
    op: 'read',
    path: 'a/b',
    want: false,
  },
  {
    why: 'the same pattern twice in one text',
    texts: [rule('a', 'read') + rule('a', 'deny')],
    op: 'read',
    path: 'a',
    want: false,
  },
  // Operations
  { why: 'read is not list', texts: [rule('a', 'read')], op: 'list', path: 'a', want: false },
  { why: 'list with slash in the rule', texts: [rule('a/', 'list')], op: 'list', path: 'a', want: true },
  { why: 'list without slash in the rule', texts: [rule('a', 'list')], op: 'list', path: 'a/', want: true },
  { why: 'list below a prefix', texts: [rule('a/*', 'list')], op: 'list', path: 'a', want: true },
  { why: 'read takes the path as it is', texts: [rule('a/*', 'read')], op: 'read', path: 'a', want: false },
  {
    why: 'list: deny at the slash wins',
    texts: [rule('a/', 'deny') + rule('a', 'list')],
    op: 'list',
    path: 'a',
    want: false,
  },
  { why: 'delete', texts: [rule('a', 'delete')], op: 'delete', path: 'a', want: true },
  { why: 'update does not delete', texts: [rule('a', 'update')], op: 'delete', path: 'a', want: false },
  { why: 'create of what is absent', texts: [rule('a', 'create')], op: 'write', path: 'a', exists: false, want: true },
  { why: 'create of what is there', texts: [rule('a', 'create')], op: 'write', path: 'a', exists: true, want: false },
  { why: 'update of what is there', texts: [rule('a', 'update')], op: 'write', path: 'a', exists: true, want: true },
  { why: 'update of what is absent', texts: [rule('a', 'update')], op: 'write', path: 'a', exists: false, want: false },
  { why: 'both', texts: [rule('a', 'create update')], op: 'write', path: 'a', exists: false, want: true },
  { why: 'read does not write', texts: [rule('a', 'read')], op: 'write', path: 'a', want: false },
  { why: 'sudo missing', texts: [rule('a', 'update')], op: 'write', path: 'a', sudo: true, want: false },
  { why: 'sudo alone is nothing', texts: [rule('a', 'sudo')], op: 'write', path: 'a', sudo: true, want: false },
  { why: 'sudo', texts: [rule('a', 'update sudo')], op: 'write', path: 'a', sudo: true, want: true },
  { why: 'sudo with deny', texts: [rule('a', 'update sudo deny')], op: 'write', path: 'a', sudo: true, want: false },
  { why: 'legacy read lists', texts: ['path "a" { policy = "read" }'], op: 'list', path: 'a', want: true },
  { why: 'legacy read does not write', texts: ['path "a" { policy = "read" }'], op: 'write', path: 'a', want: false },
  { why: 'legacy write', texts: ['path "a" { policy = "write" }'], op: 'delete', path: 'a', want: true },
  { why: 'legacy sudo', texts: ['path "a" { policy = "sudo" }'], op: 'read', path: 'a', sudo: true, want: true },
  { why: 'legacy deny', texts: ['path "a" { policy = "deny" }'], op: 'read', path: 'a', want: false },
]

const constraints: { why: string; rules: string; fields: Record<string, unknown>; want: boolean }[] = [
  { why: 'allowed name', rules: 'allowed_parameters = { ttl = [] }', fields: { ttl: '5m' }, want: true },
  { why: 'other name', rules: 'allowed_parameters = { ttl = [] }', fields: { max: 1 }, want: false },
  { why: 'no fields', rules: 'allowed_parameters = { ttl = [] }', fields: {}, want: true },
  { why: 'null is absent', rules: 'allowed_parameters = { ttl = [] }', fields: { max: null }, want: true },
  { why: 'case', rules: 'allowed_parameters = { TTL = [] }', fields: { ttl: 1 }, want: true },
  { why: 'allowed value', rules: 'allowed_parameters = { a = ["x", "y"] }', fields: { a: 'y' }, want: true },
  { why: 'other value', rules: 'allowed_parameters = { a = ["x", "y"] }', fields: { a: 'z' }, want: false },
  { why: 'glob at the end', rules: 'allowed_parameters = { a = ["team-*"] }', fields: { a: 'team-b' }, want: true },
  { why: 'glob misses', rules: 'allowed_parameters = { a = ["team-*"] }', fields: { a: 'x-team-b' }, want: false },
  { why: 'glob in front', rules: 'allowed_parameters = { a = ["*.dev"] }', fields: { a: 'x.dev' }, want: true },
  { why: 'glob around', rules: 'allowed_parameters = { a = ["*mid*"] }', fields: { a: 'a mid b' }, want: true },
  { why: 'number', rules: 'allowed_parameters = { a = [5] }', fields: { a: 5 }, want: true },
  { why: 'boolean', rules: 'allowed_parameters = { a = [false] }', fields: { a: true }, want: false },
  { why: 'list as a whole', rules: 'allowed_parameters = { a = [["x", "y"]] }', fields: { a: ['x', 'y'] }, want: true },
  { why: 'list by element', rules: 'allowed_parameters = { a = ["x", "y"] }', fields: { a: ['x'] }, want: true },
  { why: 'list element missing', rules: 'allowed_parameters = { a = ["x"] }', fields: { a: ['x', 'z'] }, want: false },
  { why: 'star besides', rules: 'allowed_parameters = { a = ["x"], "*" = [] }', fields: { b: 1 }, want: true },
  { why: 'star, known name', rules: 'allowed_parameters = { a = ["x"], "*" = [] }', fields: { a: 'y' }, want: false },
  { why: 'denied name', rules: 'denied_parameters = { a = [] }', fields: { a: 1 }, want: false },
  { why: 'denied value', rules: 'denied_parameters = { a = ["root*"] }', fields: { a: 'rooted' }, want: false },
  { why: 'denied other value', rules: 'denied_parameters = { a = ["root"] }', fields: { a: 'x' }, want: true },
  { why: 'denied in a list', rules: 'denied_parameters = { a = ["root"] }', fields: { a: ['x', 'root'] }, want: false },
  { why: 'denied in commas', rules: 'denied_parameters = { a = ["root"] }', fields: { a: 'x, root' }, want: false },
  { why: 'denied in capitals', rules: 'denied_parameters = { a = ["root"] }', fields: { a: 'ROOT' }, want: false },
  { why: 'denied with spaces', rules: 'denied_parameters = { a = ["root"] }', fields: { a: [' root\t'] }, want: false },
  { why: 'denied name in capitals', rules: 'denied_parameters = { A = ["x"] }', fields: { a: 'X' }, want: false },
  {
    why: 'denied glob in capitals',
    rules: 'denied_parameters = { a = ["Root*"] }',
    fields: { a: 'rOOTed' },
    want: false,
  },
  { why: 'all denied', rules: 'denied_parameters = { "*" = [] }', fields: { a: 1 }, want: false },
  { why: 'all denied, none given', rules: 'denied_parameters = { "*" = [] }', fields: {}, want: true },
  {
    why: 'denied before allowed',
    rules: 'allowed_parameters = { "*" = [] } denied_parameters = { a = [] }',
    fields: { a: 1 },
    want: false,
  },
  { why: 'required there', rules: 'required_parameters = ["a"]', fields: { a: '' }, want: true },
  { why: 'required missing', rules: 'required_parameters = ["a"]', fields: { b: 1 }, want: false },
  { why: 'required null', rules: 'required_parameters = ["a"]', fields: { a: null }, want: false },
]

describe('decisions', () => {
  test.each(cases)('$why', async ({ want, ...asked }) => expect(await ask(asked)).toBe(want))

  test.each(constraints)('parameters: $why', async ({ rules, fields, want }) => {
    const texts = [rule('a', 'create update', rules)]
    expect(await ask({ texts, op: 'write', path: 'a', fields })).toBe(want)
    // Constraints of writes do not stand in the way of a delete.
    expect(await ask({ texts: [rule('a', 'delete', rules)], op: 'delete', path: 'a', fields })).toBe(true)
  })

  it('asks whether the object exists only where that matters', async () => {
    await policies.put('both', rule('a', 'create update'), operator)
    await policies.put('read', rule('a', 'read'), operator)
    const exists = async (): Promise<boolean> => {
      throw new Error('asked')
    }
    const request = { path: 'a', operation: 'write' as const, exists, fields: {}, needsSudo: false }
    expect((await policies.decide(['both'], request)).allowed).toBe(true)
    expect((await policies.decide(['read'], request)).allowed).toBe(false)
  })

  it('root may everything, an unknown policy nothing', async () => {
    const request = {
      path: 'sys/auth/x',
      operation: 'write' as const,
      exists: async () => true,
      fields: {},
      needsSudo: true,
    }
    expect(await policies.decide(['root'], request)).toEqual({ allowed: true, isRoot: true })
    expect(await policies.decide(['nowhere'], request)).toEqual({ allowed: false, isRoot: false })
  })

  it('a change holds at once, also one made through another server', async () => {
    const clock = new TestClock()
    const { store } = await openEngineStore(clock)
    const [here, there] = [createPolicyService({ store }), createPolicyService({ store })]
    await here.put('p', rule('a', 'read'), operator)
    expect(await here.capabilities(['p'], 'a')).toEqual(['read'])
    await there.put('p', rule('a', 'list'), operator)
    expect(await here.capabilities(['p'], 'a')).toEqual(['list'])
    await there.delete('p', operator)
    expect(await here.capabilities(['p'], 'a')).toEqual(['deny'])
    await there.put('p', rule('a', 'sudo'), operator)
    expect(await here.capabilities(['p'], 'a')).toEqual(['sudo'])
  })
})

describe('capabilities', () => {
  test.each([
    { text: rule('a', 'update read'), path: 'a', want: ['read', 'update'] },
    { text: rule('a', 'update read'), path: '/a', want: ['read', 'update'] },
    { text: rule('a', 'update read'), path: 'b', want: ['deny'] },
    { text: rule('a', 'read deny'), path: 'a', want: ['deny'] },
    { text: 'path "a" { capabilities = [] }', path: 'a', want: ['deny'] },
  ])('$text at $path', async ({ text, path, want }) => {
    await policies.put('p', text, operator)
    expect(await policies.capabilities(['p'], path)).toEqual(want)
  })

  it('are root for root', async () => expect(await policies.capabilities(['default', 'root'], 'a')).toEqual(['root']))
})

describe('policies', () => {
  it('are one for all spellings of their names, and kept as written', async () => {
    await policies.put(' Team-A ', rule('a', 'read'), operator)
    expect(await policies.read('TEAM-A')).toEqual({ name: 'team-a', text: rule('a', 'read') })
    expect(await policies.list()).toEqual(['default', 'root', 'team-a'])
    await policies.delete('tEAM-a', operator)
    await policies.delete('team-a', operator)
    expect(await policies.read('team-a')).toBeUndefined()
  })

  it('keep the text that base64 stood for', async () => {
    await policies.put('p', Buffer.from(rule('a', 'read')).toString('base64'), operator)
    expect((await policies.read('p'))?.text).toBe(rule('a', 'read'))
  })

  test.each([
    { name: 'root', fragment: '"root" cannot be changed' },
    { name: 'ROOT', fragment: '"root" cannot be changed' },
    { name: CONTROLLER_POLICY, fragment: 'cannot be changed' },
    { name: 'response-wrapping', fragment: 'cannot be changed' },
    { name: ' ', fragment: 'name must be' },
    { name: 'a,b', fragment: 'name must be' },
    { name: 'a b', fragment: 'name must be' },
  ])('cannot be written as "$name"', async ({ name, fragment }) => {
    await expect(policies.put(name, rule('a', 'read'), operator)).rejects.toThrow(fragment)
  })

  it('that are wrong change nothing', async () => {
    await policies.put('p', rule('a', 'read'), operator)
    await expect(policies.put('p', 'path "a" {', operator)).rejects.toMatchObject({ kind: 'invalid' })
    expect((await policies.read('p'))?.text).toBe(rule('a', 'read'))
  })

  it('default can be changed, not deleted; a new token may ask about itself', async () => {
    const self = 'auth/token/lookup-self'
    expect(await policies.capabilities(['default'], self)).toEqual(['read'])
    expect((await policies.read('default'))?.text).toContain(self)
    await expect(policies.delete('default', operator)).rejects.toMatchObject({ kind: 'invalid' })
    await policies.put('default', rule('a', 'read'), operator)
    expect(await policies.capabilities(['default'], self)).toEqual(['deny'])
    expect(await policies.capabilities(['default'], 'a')).toEqual(['read'])
  })

  test.each(['root', CONTROLLER_POLICY])('%s cannot be deleted', async (name) => {
    await expect(policies.delete(name, operator)).rejects.toMatchObject({ kind: 'invalid' })
  })

  it('of a resource are written for that resource only', async () => {
    await policies.put('p', rule('a', 'read'), controllerFor('cr:1'))
    const mine = /belongs to the resource cr:1/
    await expect(policies.put('p', rule('a', 'list'), operator)).rejects.toThrow(mine)
    await expect(policies.put('p', rule('a', 'list'), controllerFor('cr:2'))).rejects.toThrow(mine)
    await expect(policies.delete('p', operator)).rejects.toThrow(mine)
    await policies.put('p', rule('a', 'list'), controllerFor('cr:1'))
    expect(await policies.read('p')).toEqual({ name: 'p', text: rule('a', 'list'), owner: 'cr:1' })
    await policies.delete('p', controllerFor('cr:1'))
    expect(await policies.read('p')).toBeUndefined()
  })
})

describe('the controller', () => {
  it('has its policy without anybody being able to see or take it', async () => {
    expect(await policies.read(CONTROLLER_POLICY)).toBeUndefined()
    expect(await policies.list()).not.toContain(CONTROLLER_POLICY)
    expect(parsePolicy(CONTROLLER_POLICY_TEXT).length).toBeGreaterThan(5)
  })

  test.each([
    { path: 'ldap/static-role/team/app', want: 'create' },
    { path: 'corp/ldap/static-cred/x', want: 'read' },
    { path: 'auth/ldap/config', want: 'update' },
    { path: 'sys/mounts/corp/ldap', want: 'create' },
    { path: 'sys/auth/corp', want: 'sudo' },
    { path: 'sys/policies/acl/team', want: 'delete' },
    { path: 'sys/tenancy/corp', want: 'update' },
    { path: 'sys/events', want: 'read' },
    { path: 'auth/token/create', want: 'deny' },
    { path: 'auth/token/accessors', want: 'deny' },
    { path: 'sys/storage/snapshot', want: 'deny' },
    { path: 'sys/policies/acl', want: 'list' },
    { path: 'identity/entity', want: 'deny' },
  ])('at $path: $want', async ({ path, want }) => {
    expect(await policies.capabilities([CONTROLLER_POLICY], path)).toContain(want)
  })
})
