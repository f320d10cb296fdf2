import { describe, expect, test } from 'vitest'
import { AppError } from '../lib/errors.ts'
import { decode, type HttpRequest } from './decode.ts'
import { HttpRefusal } from './errors.ts'

const tcp = { address: '192.0.2.1', transport: 'tcp' } as const
const unix = { address: '', transport: 'unix' } as const

function ask(
  method: string,
  url: string,
  { headers = {}, body, remote = tcp }: Partial<Omit<HttpRequest, 'body'>> & { body?: string } = {},
) {
  return decode({ method, url, headers, body: body === undefined ? undefined : Buffer.from(body), remote }, 'id-1')
}

/** The status that a refusal stands for, and its text. */
function refusal(run: () => unknown): string {
  try {
    run()
  } catch (error) {
    if (error instanceof AppError) return `${error.kind}: ${error.message}`
    if (error instanceof HttpRefusal) return `${error.status}: ${error.message}`
    throw error
  }
  throw new Error('nothing was refused')
}

describe('operation', () => {
  test.each([
    ['GET', '/v1/a', 'read', 'a'],
    ['HEAD', '/v1/a', 'read', 'a'],
    ['GET', '/v1/a?list=true', 'list', 'a/'],
    ['GET', '/v1/a/?list=1', 'list', 'a/'],
    ['GET', '/v1/a?list=T', 'list', 'a/'],
    ['GET', '/v1/a?list=False', 'read', 'a'],
    ['LINK', '/v1/a/b', 'list', 'a/b/'],
    ['LINK', '/v1/a/b/', 'list', 'a/b/'],
    ['POST', '/v1/a', 'write', 'a'],
    ['PUT', '/v1/a', 'write', 'a'],
    ['DELETE', '/v1/a', 'delete', 'a'],
  ])('%s %s', (method, url, operation, path) => {
    expect(ask(method, url)).toMatchObject({ id: 'id-1', operation, path, fields: {}, remote: tcp })
  })

  test.each([
    ['GET', '/v1/a?list=maybe', {}, 'invalid: the query parameter list'],
    ['GET', '/v1/a?list=', {}, 'invalid: the query parameter list'],
    ['PATCH', '/v1/a', {}, '415: '],
    ['PATCH', '/v1/a', { 'content-type': 'application/merge-patch+json' }, 'unsupported: '],
    ['TRACE', '/v1/a', {}, 'unsupported: '],
    ['UNLINK', '/v1/a', {}, 'unsupported: '],
  ])('%s %s %j is refused', (method, url, headers, want) => {
    expect(refusal(() => ask(method, url, { headers }))).toContain(want)
  })
})

describe('path', () => {
  test.each([
    ['/v1/ldap/static-role/a.b-c', 'ldap/static-role/a.b-c'],
    ['/v1/auth/ldap/login/J%C3%BCrgen%20M', 'auth/ldap/login/Jürgen M'],
    ['/v1/auth/ldap/groups/a%2Fb%252F', 'auth/ldap/groups/a/b%2F'],
    ['/v1/a..b/...', 'a..b/...'],
    ['http://any.example/v1/a?x=1', 'a'],
  ])('%s', (url, path) => {
    expect(ask('GET', url).path).toBe(path)
  })

  test.each([
    ['/', '404: '],
    ['/v1', '404: '],
    ['/v1/', '404: '],
    ['/v2/a', '404: '],
    ['*', '404: '],
    ['/v1/a/../b', 'invalid: the path must not'],
    ['/v1/a/%2e%2e/b', 'invalid: the path must not'],
    ['/v1/a%2F..', 'invalid: the path must not'],
    ['/v1/a%00', 'invalid: the path holds'],
    ['/v1/a%0Ab', 'invalid: the path holds'],
    ['/v1/a%E2%80%AEb', 'invalid: the path holds'],
    ['/v1/a%C2%A0b', 'invalid: the path holds'],
    ['/v1/a%', 'invalid: the path is not'],
    ['/v1/a%FF', 'invalid: the path is not'],
  ])('%s is refused', (url, want) => {
    expect(refusal(() => ask('GET', url))).toContain(want)
  })

  test('a write to a path that ends in a slash is refused', () => {
    expect(refusal(() => ask('POST', '/v1/a/'))).toContain('invalid: cannot write')
  })
})

describe('headers', () => {
  test.each([
    [{ 'x-service-token': 's', 'x-vault-token': 'v', authorization: 'Bearer b' }, 's', 'envelope'],
    [{ 'x-vault-token': 'v', authorization: 'Bearer b' }, 'v', 'envelope'],
    [{ authorization: 'bearer b' }, 'b', 'envelope'],
    [{ authorization: 'Basic YTpi' }, undefined, 'envelope'],
    [{ 'x-service-token': 's' }, 's', 'bare'],
    [{ 'x-service-token': 's', 'x-vault-request': 'true' }, 's', 'envelope'],
    [{ 'x-service-token': 's', authorization: 'Bearer b' }, 's', 'envelope'],
    [{}, undefined, 'envelope'],
  ])('%j', (headers, token, dialect) => {
    const request = ask('GET', '/v1/a', { headers })
    expect(request.token?.reveal()).toBe(token)
    expect(request.dialect).toBe(dialect)
  })

  test.each(['', 'root', 'root/', '/'])('namespace "%s" is the root namespace', (namespace) => {
    expect(ask('GET', '/v1/a', { headers: { 'x-vault-namespace': namespace } }).path).toBe('a')
  })

  test('another namespace is not found', () => {
    expect(refusal(() => ask('GET', '/v1/a', { headers: { 'x-vault-namespace': 'team' } }))).toContain('404: ')
  })

  test('principal and owner pass on the unix socket and are refused elsewhere', () => {
    const headers = { 'x-keyturn-principal': 'kubernetes:team', 'x-keyturn-owner': 'cr:1' }
    expect(ask('GET', '/v1/a', { headers, remote: unix })).toMatchObject({
      principal: 'kubernetes:team',
      owner: 'cr:1',
    })
    expect(refusal(() => ask('GET', '/v1/a', { headers }))).toContain('denied: permission denied')
  })

  test.each(['5m', '60', '1ms', 'abc', '-1', '5 m'])(
    'an answer that should be wrapped for "%s" is not given bare',
    (ttl) => {
      for (const name of ['x-vault-wrap-ttl', 'x-service-wrap-ttl'])
        expect(refusal(() => ask('GET', '/v1/a', { headers: { [name]: ttl } }))).toContain(`invalid: ${name}`)
    },
  )

  test.each(['', '0', '0s', '000'])('"%s" asks for no wrapping', (ttl) => {
    expect(ask('GET', '/v1/a', { headers: { 'x-vault-wrap-ttl': ttl } }).path).toBe('a')
  })
})

describe('fields', () => {
  test('of a query, without list', () => {
    expect(ask('GET', '/v1/a?list=0&x=1&y=a&y=b&x%20y=%C3%A9').fields).toEqual({ x: '1', y: ['a', 'b'], 'x y': 'é' })
    expect(ask('DELETE', '/v1/a?x=1', { body: '{"y":2}' }).fields).toEqual({ x: '1' })
  })

  const form = { 'content-type': 'application/x-www-form-urlencoded; charset=utf-8' }
  test.each([
    [undefined, {}, {}],
    ['', {}, {}],
    [' \r\n', {}, {}],
    ['{"a":1,"b":{"c":[true,null]}}', {}, { a: 1, b: { c: [true, null] } }],
    [' {"a":"é"}', form, { a: 'é' }],
    ['\uFEFF{"a":1}', {}, { a: 1 }],
    ['a=1&b=x+y&b=%7B', form, { a: '1', b: ['x y', '{'] }],
    ['{"constructor":1,"toString":2}', {}, { constructor: 1, toString: 2 }],
    [`{"a":"${'\\\\,\\"{['.repeat(30_000)}"}`, {}, { a: '\\,"{['.repeat(30_000) }],
  ])('%s', (body, headers, fields) => {
    expect(ask('POST', '/v1/a?x=1', { headers, ...(body !== undefined && { body }) }).fields).toEqual(fields)
  })

  test.each([
    ['{"password":"hunter2"', {}, 'not valid JSON'],
    ['[1]', {}, 'must be a JSON object'],
    ['"a"', {}, 'must be a JSON object'],
    ['null', {}, 'must be a JSON object'],
    ['a=1', {}, 'not valid JSON'],
    ['[1]', form, 'must be a JSON object'],
    ['{"a":[{"__proto__":{"x":1}}]}', {}, '__proto__'],
    ['{"\\u005f_proto__":1}', {}, '__proto__'],
    ['__proto__=1', form, '__proto__'],
    [`{"a":${'['.repeat(200)}${']'.repeat(200)}}`, {}, 'nested deeper'],
    [`{"a":[${'1,'.repeat(50_000)}1]}`, {}, 'more than 50000 values'],
    [`{"a":${'['.repeat(1_000_000)}`, {}, 'more than 50000 values'],
    ['a=&'.repeat(50_001), form, 'more than 50000 values'],
  ])('%.40s is refused', (body, headers, want) => {
    const text = refusal(() => ask('POST', '/v1/a', { body, headers }))
    expect(text).toContain(want)
    expect(text).not.toContain('hunter2')
  })

  test('as many values of one name as there may be are read at once', () => {
    const startMs = performance.now()
    const { fields } = ask('POST', '/v1/a', { headers: form, body: `${'a=&'.repeat(49_999)}a=` })
    expect(fields['a']).toHaveLength(50_000)
    // With the list copied for each value it took more than twice as long.
    expect(performance.now() - startMs).toBeLessThan(5_000)
  })

  test('a body that is not UTF-8 is refused', () => {
    const body = Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])
    expect(refusal(() => decode({ method: 'PUT', url: '/v1/a', headers: {}, body, remote: tcp }, 'i'))).toContain(
      'UTF-8',
    )
  })
})
