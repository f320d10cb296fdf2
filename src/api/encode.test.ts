import { describe, expect, test } from 'vitest'
import { AppError, denied, invalid, unavailable } from '../lib/errors.ts'
import { createLogger } from '../lib/log.ts'
import { systemRandom } from '../lib/random.ts'
import { Secret } from '../lib/secret.ts'
import type { ContentAnswer } from '../schema/answer.ts'
import { encode } from './encode.ts'
import { errorReply } from './errors.ts'

const content: ContentAnswer = { kind: 'content', requestId: 'r', mountType: 'ldap', warnings: [], shape: 'envelope' }
const none = {
  lease_id: '',
  renewable: false,
  lease_duration: 0,
  data: null,
  wrap_info: null,
  warnings: null,
  auth: null,
}

function encoded(answer: Parameters<typeof encode>[0], dialect: 'envelope' | 'bare' = 'envelope', fields = {}) {
  const { status, body } = encode(answer, { dialect, fields })
  return { status, body: body === undefined ? undefined : JSON.parse(body) }
}

describe('an answer', () => {
  test('with nothing to say is 204, with warnings 200', () => {
    expect(encoded({ kind: 'empty', requestId: 'r', warnings: [] })).toEqual({ status: 204, body: undefined })
    expect(encoded({ kind: 'empty', requestId: 'r', warnings: ['w'] })).toEqual({
      status: 200,
      body: { ...none, request_id: 'r', warnings: ['w'], mount_type: '' },
    })
  })

  test('of something absent is 404 without errors', () => {
    expect(encoded({ kind: 'absent', requestId: 'r', warnings: [] })).toEqual({ status: 404, body: { errors: [] } })
    expect(encoded({ kind: 'absent', requestId: 'r', warnings: ['w'] }).body).toEqual({ errors: [], warnings: ['w'] })
  })

  test('has every member of the envelope', () => {
    expect(encoded(content)).toEqual({ status: 200, body: { ...none, request_id: 'r', mount_type: 'ldap' } })
  })

  test('reveals secrets, spells times, and whole seconds of a lease', () => {
    const data = {
      password: new Secret('p"w'),
      at: new Date('2026-05-01T09:00:00.120Z'),
      round: new Date('2026-05-01T09:00:00Z'),
      list: [new Secret('x'), { deep: new Secret('y') }],
      none: null,
    }
    const lease = { id: 'ldap/creds/dev/1', durationMs: 3_600_999, renewable: true }
    expect(encoded({ ...content, data, lease }).body).toMatchObject({
      lease_id: 'ldap/creds/dev/1',
      lease_duration: 3600,
      renewable: true,
      data: {
        password: 'p"w',
        at: '2026-05-01T09:00:00.120Z',
        round: '2026-05-01T09:00:00Z',
        list: ['x', { deep: 'y' }],
        none: null,
      },
    })
  })

  test('that is flat has its members at the top level too, never in place of the envelope', () => {
    const data = { username: 'app', ttl: 5, auth: 'mine' }
    expect(encoded({ ...content, shape: 'flat', data }).body).toEqual({
      ...none,
      request_id: 'r',
      mount_type: 'ldap',
      username: 'app',
      ttl: 5,
      data,
    })
  })

  test('that is raw is the bare object', () => {
    expect(encoded({ ...content, shape: 'raw', data: { a: 1 } }).body).toEqual({ a: 1 })
  })

  test.each([
    ['keys', 'envelope', ['a', 'b/'], 200, { data: { keys: ['a', 'b/'] } }],
    ['keys', 'bare', ['a', 'b/'], 200, ['a', 'b/']],
    ['keys', 'bare', [], 200, []],
    ['keys', 'envelope', [], 404, { errors: [] }],
    ['listing', 'bare', ['a'], 200, { data: { keys: ['a'] } }],
    ['listing', 'bare', [], 404, { errors: [] }],
  ] as const)('%s for %s of %j', (shape, dialect, keys, status, body) => {
    const got = encoded({ ...content, shape, keys }, dialect)
    expect(got.status).toBe(status)
    if (Array.isArray(body)) expect(got.body).toEqual(body)
    else expect(got.body).toMatchObject(body)
  })

  test('of a login', () => {
    const auth = {
      clientToken: new Secret('kts.x'),
      accessor: 'acc',
      policies: ['default', 'ops'],
      tokenPolicies: ['default', 'ops'],
      identityPolicies: [],
      metadata: { username: 'bob' },
      leaseDurationMs: 2_764_800_000,
      renewable: true,
      entityId: 'e',
      tokenType: 'service',
      orphan: true,
      numUses: 0,
    } as const
    expect(encoded({ ...content, auth }).body.auth).toEqual({
      client_token: 'kts.x',
      accessor: 'acc',
      policies: ['default', 'ops'],
      token_policies: ['default', 'ops'],
      metadata: { username: 'bob' },
      lease_duration: 2_764_800,
      renewable: true,
      entity_id: 'e',
      token_type: 'service',
      orphan: true,
      mfa_requirement: null,
      num_uses: 0,
    })
    const more = encoded({ ...content, auth: { ...auth, identityPolicies: ['i'], metadata: undefined } }).body.auth
    expect(more).toMatchObject({ identity_policies: ['i'], metadata: null })
  })

  test.each([
    ['active', {}, 200],
    ['standby', {}, 429],
    ['sealed', {}, 503],
    ['standby', { standbyok: 'true' }, 200],
    ['standby', { standbyok: '' }, 200],
    ['standby', { standbyok: 'false' }, 429],
    ['standby', { standbycode: '299' }, 299],
    ['active', { activecode: '204' }, 204],
    ['sealed', { sealedcode: '200', standbycode: '400' }, 200],
  ] as const)('health %s with %j is %i', (health, fields, status) => {
    const got = encoded({ ...content, shape: 'raw', data: { sealed: false }, health }, 'envelope', fields)
    expect(got).toEqual({ status, body: { sealed: false } })
  })

  test('a health status that is none is refused', () => {
    expect(() => encoded({ ...content, shape: 'raw', health: 'active' }, 'envelope', { activecode: '99' })).toThrow(
      AppError,
    )
  })
})

describe('a failure', () => {
  const deps = { log: createLogger({ level: 'silent' }), random: systemRandom, about: {} }
  test.each([
    [invalid('field x'), 400, 'field x'],
    [denied(), 403, '1 error occurred:\n\t* permission denied\n\n'],
    [denied('bad token'), 403, '2 errors occurred:\n\t* permission denied\n\t* bad token\n\n'],
    [new AppError('not-found', 'no handler'), 404, 'no handler'],
    [new AppError('unsupported', 'no'), 405, 'no'],
    [new AppError('too-large', 'no'), 413, 'no'],
    [new Error('secret detail'), 500, 'internal error'],
    ['thrown text', 500, 'internal error'],
  ])('%s', (error, status, text) => {
    expect(errorReply(error, deps)).toEqual({ status, errors: [text] })
  })

  test('that passes tells to come back within five seconds', () => {
    const waits = new Set(Array.from({ length: 200 }, () => errorReply(unavailable('down'), deps).retryAfterS))
    expect([...waits].toSorted()).toEqual([1, 2, 3, 4, 5])
  })
})
