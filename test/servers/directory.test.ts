import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { DirectoryDoor, Session } from '../../src/engine/directory/directory.ts'
import { createDirectoryDoor, type DoorLimits } from '../../src/engine/directory/door.ts'
import { DirectoryError } from '../../src/engine/directory/errors.ts'
import { equals, parseFilter, present } from '../../src/engine/directory/filter.ts'
import { passwordChanges } from '../../src/engine/directory/password.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { ANONYMOUS, identity, service, settingsFor } from '../support/directory-settings.ts'
import { serveScripted } from '../support/scripted-ldap.ts'
import { type Slapd, SUFFIX, slapdAvailable, startSlapd } from '../support/slapd.ts'
import { type Hook, startHook } from '../support/slapd-hook.ts'

const PEOPLE = `ou=people,${SUFFIX}`
const ALICE = `uid=alice,${PEOPLE}`
const never = new AbortController().signal

let door: DirectoryDoor
beforeEach(() => {
  door = openDoor()
})
afterEach(() => door[Symbol.asyncDispose]())

function openDoor(limits?: DoorLimits): DirectoryDoor {
  return createDirectoryDoor({ clock: systemClock, random: systemRandom, ...(limits && { limits }) })
}

async function failureOf(work: Promise<unknown>): Promise<DirectoryError> {
  const error = await work.then(
    () => undefined,
    (error: unknown) => error,
  )
  expect(error).toBeInstanceOf(DirectoryError)
  return error as DirectoryError // proven by the line above
}

const findUid =
  (uid: string, base = PEOPLE) =>
  (session: Session) =>
    session.search({ base, scope: 'sub', filter: equals('uid', uid), attributes: ['uid'] })

describe.skipIf(!slapdAvailable())('one seeded slapd', () => {
  let slapd: Slapd
  let hook: Hook
  let hookDir: string
  beforeAll(async () => {
    hookDir = await mkdtemp(path.join(tmpdir(), 'kt-hook-'))
    hook = await startHook(path.join(hookDir, 's'), () => 'CONTINUE')
    slapd = await startSlapd({ HOOK: path.join(hookDir, 's') })
  })
  afterAll(async () => {
    await slapd.stop()
    await hook[Symbol.asyncDispose]()
    await rm(hookDir, { recursive: true, force: true })
  })
  beforeEach(() => {
    hook.seen.length = 0
    hook.handler = () => 'CONTINUE'
  })

  test('finds an entry and sets its password in one modify; the new password binds and the old does not', async () => {
    const settings = settingsFor(slapd.url)
    const dn = `uid=static-1,ou=services,${SUFFIX}`
    await door.withSession(settings, service('svc-manager'), never, async (session) => {
      const [entry] = await session.search({
        base: `ou=services,${SUFFIX}`,
        scope: 'sub',
        filter: equals('uid', 'static-1'),
        attributes: ['UID', 'objectClass'],
      })
      expect(entry?.dn).toBe(dn)
      expect(entry?.first('Uid')).toBe('static-1')
      expect(entry?.all('objectclass')).toContain('inetOrgPerson')
      expect(entry?.attributes.get('uid')).toEqual([Buffer.from('static-1')])
      await session.replace(dn, passwordChanges('openldap', new Secret('pässwörd-☃'), 'password'))
    })
    expect(hook.seen.filter(({ type }) => type === 'MODIFY').length).toBe(1)
    expect(await door.verify(settings, identity(dn, 'pässwörd-☃'), never)).toBe(true)
    expect(await door.verify(settings, identity(dn, 'static-1-secret'), never)).toBe(false)
  })

  test('names with every special character are found and bind', async () => {
    const settings = settingsFor(slapd.url)
    for (const [attribute, value, password] of [
      ['uid', 'we*(ird)\\', 'weird-secret'],
      ['cn', 'Smith, Pat "PJ" + <ops> #1; a=b\\', 'pat-secret'],
      ['uid', 'josé', 'pässwörd-☃'],
      ['uid', 'multi', 'multi-secret'],
    ] as const) {
      const entries = await door.withSession(settings, service('svc-reader'), never, (session) =>
        session.search({ base: PEOPLE, scope: 'sub', filter: equals(attribute, value), attributes: ['cn'] }),
      )
      expect(entries).toHaveLength(1)
      expect(await door.verify(settings, identity(entries[0]?.dn ?? '', password), never)).toBe(true)
    }
  })

  test('hex escapes of an administrator become octets', async () => {
    const entries = await door.withSession(settingsFor(slapd.url), service('svc-reader'), never, (session) =>
      session.search({ base: PEOPLE, scope: 'sub', filter: parseFilter('(uid=jos\\c3\\a9)'), attributes: ['uid'] }),
    )
    expect(entries[0]?.first('uid')).toBe('josé')
  })

  test('a warm login costs one search and one bind, and no new connection', async () => {
    const settings = settingsFor(slapd.url)
    const login = async () => {
      await door.withSession(settings, service('svc-reader'), never, findUid('alice'))
      expect(await door.verify(settings, identity(ALICE, 'alice-secret'), never)).toBe(true)
    }
    await login()
    const connections = new Set(hook.seen.map(({ connid }) => connid))
    hook.seen.length = 0
    await login()
    expect(hook.seen.map(({ type }) => type)).toEqual(['SEARCH', 'BIND'])
    for (const { connid } of hook.seen) expect(connections).toContain(connid)
  })

  test('login connections only ever bind; searches run as who they were asked for', async () => {
    const settings = settingsFor(slapd.url)
    expect(await door.verify(settings, identity(ALICE, 'wrong'), never)).toBe(false)
    expect(await door.verify(settings, identity(ALICE, 'alice-secret'), never)).toBe(true)
    await door.withSession(settings, service('svc-reader'), never, findUid('alice'))
    const search = hook.seen.find(({ type }) => type === 'SEARCH')
    expect(search?.binddn).toBe(service('svc-reader').name)
    const logins = new Set(hook.seen.filter(({ password }) => password.startsWith('alice')).map(({ connid }) => connid))
    expect(logins).not.toContain(search?.connid)
  })

  test('another password is another connection', async () => {
    const settings = settingsFor(slapd.url)
    await door.withSession(settings, service('svc-reader'), never, findUid('alice'))
    const wrong = identity(service('svc-reader').name, 'wrong')
    const error = await failureOf(door.withSession(settings, wrong, never, findUid('alice')))
    expect(error).toMatchObject({ class: 'bind-refused', resultCode: 49, kind: 'unavailable' })
    expect(error.message).not.toContain('wrong')
  })

  test('forget closes pooled connections: the next work binds anew', async () => {
    const settings = settingsFor(slapd.url)
    await door.withSession(settings, service('svc-reader'), never, findUid('alice'))
    door.forget(settings)
    hook.seen.length = 0
    await door.withSession(settings, service('svc-reader'), never, findUid('alice'))
    expect(hook.seen.map(({ type }) => type).filter((type) => type !== 'UNBIND')).toEqual(['BIND', 'SEARCH'])
  })

  test('an empty password is not sent unless that is asked for', async () => {
    const settings = settingsFor(slapd.url)
    await expect(door.verify(settings, identity(ALICE, ''), never)).rejects.toMatchObject({ kind: 'invalid' })
    expect(hook.seen).toEqual([])
    expect(await door.verify(settings, identity(ALICE, ''), never, { allowUnauthenticated: true })).toBe(false)
    expect(await door.verify(settings, ANONYMOUS, never)).toBe(true)
  })

  test('works anonymously, also inside work of a service that takes every slot', async () => {
    const settings = settingsFor(slapd.url)
    const narrow = openDoor({ perServer: 2 })
    const nested = () =>
      narrow.withSession(settings, service('svc-reader'), never, async (session) => {
        await findUid('alice')(session)
        return narrow.withSession(settings, ANONYMOUS, AbortSignal.timeout(5_000), findUid('bob'))
      })
    const found = await Promise.all([nested(), nested(), nested(), nested()])
    expect(found.map((entries) => entries.length)).toEqual([1, 1, 1, 1])
    await narrow[Symbol.asyncDispose]()
  })

  test('a user who proves herself by a fresh session searches as herself, and nobody else on that connection', async () => {
    const settings = settingsFor(slapd.url)
    const asAlice = () =>
      door.withSession(settings, identity(ALICE, 'alice-secret'), never, findUid('bob'), { fresh: true })
    expect(await asAlice()).toHaveLength(1)
    const search = hook.seen.find(({ type }) => type === 'SEARCH')
    expect(search?.binddn).toBe(ALICE)
    hook.seen.length = 0
    await asAlice()
    expect(hook.seen.some(({ type }) => type === 'BIND')).toBe(true)
    const error = await failureOf(
      door.withSession(settings, identity(ALICE, 'wrong'), never, findUid('bob'), { fresh: true }),
    )
    expect(error.class).toBe('bind-refused')
    const unknown = identity(`uid=nobody,${PEOPLE}`, 'x')
    expect((await failureOf(door.withSession(settings, unknown, never, findUid('bob'), { fresh: true }))).class).toBe(
      'bind-refused',
    )
  })

  test('no more than the limit runs at a server at once; the rest waits', async () => {
    const settings = settingsFor(slapd.url, { requestTimeoutMs: 30_000 })
    const narrow = openDoor({ perServer: 3 })
    const held: (() => void)[] = []
    let most = 0
    hook.handler = ({ type }) => {
      if (type !== 'SEARCH') return 'CONTINUE'
      return new Promise((resolve) => {
        held.push(() => resolve('CONTINUE'))
        most = Math.max(most, held.length)
      })
    }
    const all = Array.from({ length: 7 }, () =>
      narrow.withSession(settings, service('svc-reader'), never, findUid('alice')),
    )
    for (let left = 7; left > 0; left--) {
      await expect.poll(() => held.length).toBe(Math.min(3, left))
      held.shift()?.()
    }
    expect((await Promise.all(all)).every((entries) => entries.length === 1)).toBe(true)
    expect(most).toBe(3)
    await narrow[Symbol.asyncDispose]()
  })

  test('paging reads past a size limit; without it the limit is told', async () => {
    const unpaged = settingsFor(slapd.url)
    const all = (session: Session) =>
      session.search({ base: SUFFIX, scope: 'sub', filter: present('objectClass'), attributes: ['1.1'] })
    const error = await failureOf(door.withSession(unpaged, service('svc-small'), never, all))
    expect(error).toMatchObject({ class: 'refused', resultCode: 4 })
    const paged = settingsFor(slapd.url, { maxPageSize: 5 })
    const entries = await door.withSession(paged, service('svc-small'), never, all)
    expect(entries.length).toBeGreaterThan(25)
    expect(new Set(entries.map(({ dn }) => dn)).size).toBe(entries.length)
  })

  test('a size limit of our own ends a search without an error', async () => {
    const entries = await door.withSession(settingsFor(slapd.url), service('svc-reader'), never, (session) =>
      session.search({ base: PEOPLE, scope: 'sub', filter: present('uid'), attributes: ['uid'], sizeLimit: 2 }),
    )
    expect(entries).toHaveLength(2)
  })

  test.each([
    { mode: 'never', base: 0, below: 'uid=al' },
    { mode: 'finding', base: 1, below: 'uid=al' },
    { mode: 'searching', base: 0, below: 'uid=alice' },
    { mode: 'always', base: 1, below: 'uid=alice' },
  ] as const)('dereference_aliases $mode', async ({ mode, base, below }) => {
    const settings = settingsFor(slapd.url, { dereferenceAliases: mode })
    const staff = `ou=staff,ou=aliases,${SUFFIX}`
    await door.withSession(settings, service('svc-reader'), never, async (session) => {
      const through = await findUid('bob', staff)(session).catch(() => [])
      expect(through).toHaveLength(base)
      const aliases = await session.search({
        base: `ou=aliases,${SUFFIX}`,
        scope: 'one',
        filter: present('objectClass'),
        attributes: ['1.1'],
      })
      expect(aliases.map(({ dn }) => dn.split(',')[0])).toContain(below)
    })
  })

  test.each([
    { fault: 'operations', search: 'unavailable', code: 1 },
    { fault: 'timelimit', search: 'unavailable', code: 3 },
    { fault: 'referral', search: 'refused', code: 10 },
    { fault: 'constraint', search: 'rejected', code: 19 },
    { fault: 'busy', search: 'unavailable', code: 51 },
    { fault: 'unavailable', search: 'unavailable', code: 52 },
    { fault: 'unwilling', search: 'rejected', code: 53 },
  ])('result code $code ($fault) of a search and of a modify', async ({ fault, search, code }) => {
    const dn = `cn=${fault},ou=faults,${SUFFIX}`
    const settings = settingsFor(slapd.url)
    const work = (operation: (session: Session) => Promise<unknown>) =>
      failureOf(door.withSession(settings, service('svc-manager'), never, operation))
    const filter = present('objectClass')
    const searched = await work((session) => session.search({ base: dn, scope: 'base', filter, attributes: [] }))
    expect(searched).toMatchObject({ class: search, resultCode: code, server: slapd.url })
    const changes = passwordChanges('openldap', new Secret('pl4nted-secret'), 'password')
    const modified = await work((session) => session.replace(dn, changes))
    expect(modified.resultCode).toBe(code)
    expect(`${modified.message} ${JSON.stringify(modified)} ${String(modified.cause)}`).not.toContain('pl4nted')
    // The answer of a server is no fault of the connection: nothing was opened anew.
    expect(hook.seen.filter(({ type }) => type === 'BIND').length).toBe(1)
  })

  test.each([
    { fault: 'constraint', refused: true },
    { fault: 'unwilling', refused: true },
    { fault: 'busy', refused: false },
    { fault: 'unavailable', refused: false },
  ])('a bind answered with $fault', async ({ fault, refused }) => {
    const who = identity(`cn=${fault},ou=faults,${SUFFIX}`, 'x')
    const settings = settingsFor(slapd.url)
    const error = await failureOf(door.withSession(settings, who, never, findUid('alice')))
    expect(error.class).toBe(refused ? 'bind-refused' : 'unavailable')
    if (refused) expect(await door.verify(settings, who, never)).toBe(false)
    else expect((await failureOf(door.verify(settings, who, never))).class).toBe('unavailable')
  })

  test('an absent entry, a right that is missing, a name that is no DN', async () => {
    const settings = settingsFor(slapd.url)
    const filter = present('objectClass')
    const at = (base: string) => (session: Session) => session.search({ base, scope: 'base', filter, attributes: [] })
    const reader = service('svc-reader')
    expect((await failureOf(door.withSession(settings, reader, never, at(`cn=no,${SUFFIX}`)))).class).toBe('absent')
    expect((await failureOf(door.withSession(settings, reader, never, at('no dn')))).class).toBe('refused')
    const changes = passwordChanges('openldap', new Secret('x'), 'password')
    const error = await failureOf(door.withSession(settings, reader, never, (s) => s.replace(ALICE, changes)))
    expect(error).toMatchObject({ class: 'refused', resultCode: 50 })
  })

  test('a server that vanishes: a search is unavailable, a modify unknown', async () => {
    const dn = `cn=vanish,ou=faults,${SUFFIX}`
    const settings = settingsFor(slapd.url)
    const filter = present('objectClass')
    const searched = await failureOf(
      door.withSession(settings, service('svc-manager'), never, (session) =>
        session.search({ base: dn, scope: 'base', filter, attributes: [] }),
      ),
    )
    expect(searched.class).toBe('unavailable')
    const changes = passwordChanges('openldap', new Secret('pl4nted-secret'), 'password')
    const modified = await failureOf(
      door.withSession(settings, service('svc-manager'), never, (session) => session.replace(dn, changes)),
    )
    expect(modified).toMatchObject({ class: 'unknown-outcome', kind: 'unavailable' })
    expect(await door.withSession(settings, service('svc-manager'), never, findUid('alice'))).toHaveLength(1)
  })

  test('a modify without an answer is unknown, within the limit; the connection is not used again', async () => {
    // The bind and the search must be answered within it too.
    const settings = settingsFor(slapd.url, { requestTimeoutMs: 3_000 })
    const { promise: over, resolve: end } = Promise.withResolvers<'CONTINUE'>()
    hook.handler = ({ type }) => (type === 'MODIFY' ? over : 'CONTINUE')
    const changes = passwordChanges('openldap', new Secret('static-2-secret'), 'password')
    const began = performance.now()
    const error = await failureOf(
      door.withSession(settings, service('svc-manager'), never, async (session) => {
        await findUid('static-2', SUFFIX)(session)
        await session.replace(`uid=static-2,ou=services,${SUFFIX}`, changes)
      }),
    )
    expect(error.class).toBe('unknown-outcome')
    expect(performance.now() - began).toBeLessThan(15_000)
    end('CONTINUE')
    const before = new Set(hook.seen.map(({ connid }) => connid))
    hook.seen.length = 0
    await door.withSession(settings, service('svc-manager'), never, findUid('alice'))
    expect(before).not.toContain(hook.seen.find(({ filter }) => filter.includes('alice'))?.connid)
  })

  test('an aborted signal ends a bind, a search and a modify that hang', async () => {
    const settings = settingsFor(slapd.url, { requestTimeoutMs: 60_000 })
    const { promise: over, resolve: end } = Promise.withResolvers<'CONTINUE'>()
    const changes = passwordChanges('openldap', new Secret('static-2-secret'), 'password')
    const work = {
      BIND: (signal: AbortSignal) => door.withSession(settings, service('svc-manager'), signal, findUid('alice')),
      SEARCH: (signal: AbortSignal) => door.withSession(settings, service('svc-manager'), signal, findUid('alice')),
      MODIFY: (signal: AbortSignal) =>
        door.withSession(settings, service('svc-manager'), signal, (session) =>
          session.replace(`uid=static-2,ou=services,${SUFFIX}`, changes),
        ),
    }
    for (const kind of ['BIND', 'SEARCH', 'MODIFY'] as const) {
      const stop = new AbortController()
      hook.handler = ({ type, filter }) => {
        // The door's own question whether a connection is alive is not the search that is meant to hang.
        if (type !== kind || (kind === 'SEARCH' && !filter.includes('alice'))) return 'CONTINUE'
        stop.abort(new Error('enough'))
        return over
      }
      const ended = await work[kind](stop.signal).then(
        () => undefined,
        (error: unknown) => error,
      )
      expect(ended, kind).toBeDefined()
      if (kind === 'MODIFY') expect(ended).toMatchObject({ class: 'unknown-outcome' })
    }
    end('CONTINUE')
  })
})

describe.skipIf(!slapdAvailable())('TLS', () => {
  const started: Slapd[] = []
  const start = async (env: Record<string, string>) => {
    const slapd = await startSlapd(env)
    started.push(slapd)
    return slapd
  }
  afterEach(async () => {
    for (const slapd of started.splice(0)) await slapd.stop()
  })
  const find = (settings: ReturnType<typeof settingsFor>) =>
    door.withSession(settings, service('svc-reader'), never, findUid('alice'))
  const TLS_NEEDED = { TLS_REQUIRED: '1' }

  test('LDAPS and StartTLS with our CA, by address and by name; without TLS the server refuses', async () => {
    const slapd = await start(TLS_NEEDED)
    const certificate = slapd.ca
    const named = slapd.tlsUrl.replace('127.0.0.1', 'localhost')
    expect(await find(settingsFor(slapd.tlsUrl, { certificate }))).toHaveLength(1)
    expect(await find(settingsFor(named, { certificate }))).toHaveLength(1)
    expect(await find(settingsFor(slapd.url, { certificate, startTls: true }))).toHaveLength(1)
    const error = await failureOf(find(settingsFor(slapd.url)))
    expect(error).toMatchObject({ resultCode: 13 })
    expect(error.message).toContain('StartTLS')
  })

  test.each([
    { cert: 'wrongname', why: /altnames|does not match/i },
    { cert: 'expired', why: /expired/i },
    { cert: 'sha1', why: /sha-?1|too weak/i },
  ])(
    'a certificate that is $cert is refused over LDAPS and StartTLS before anything is sent',
    async ({ cert, why }) => {
      const slapd = await start({ CERT: cert })
      const certificate = slapd.ca
      for (const settings of [
        settingsFor(slapd.tlsUrl, { certificate }),
        settingsFor(slapd.url, { certificate, startTls: true }),
      ]) {
        const error = await failureOf(find(settings))
        expect(error.class).toBe('unavailable')
        expect(error.message).toMatch(why)
        expect(await find({ ...settings, insecureTls: true })).toHaveLength(1)
      }
    },
  )

  test.each(['tls10', 'tls11', 'tls12', 'tls13'] as const)(
    'SHA-1 is refused with tls_min_version %s',
    async (oldest) => {
      const slapd = await start({ CERT: 'sha1' })
      const settings = settingsFor(slapd.tlsUrl, {
        certificate: slapd.ca,
        tlsMinVersion: oldest,
        tlsMaxVersion: 'tls13',
      })
      const error = await failureOf(find(settings))
      expect(error.message).toMatch(/sha-?1|too weak/i)
    },
  )

  test('another authority, and the system roots, do not do', async () => {
    const slapd = await start({})
    const other = await slapd.tls('other-ca.crt')
    expect((await failureOf(find(settingsFor(slapd.tlsUrl, { certificate: other })))).class).toBe('unavailable')
    expect((await failureOf(find(settingsFor(slapd.tlsUrl)))).class).toBe('unavailable')
  })

  test('a server of TLS 1.3 only: the error names the settings, and tls13 reaches it', async () => {
    const slapd = await start({ TLS_PRIORITY: 'NORMAL:-VERS-ALL:+VERS-TLS1.3' })
    const settings = settingsFor(slapd.tlsUrl, { certificate: slapd.ca })
    expect((await failureOf(find(settings))).message).toContain('tls_max_version')
    expect(await find({ ...settings, tlsMaxVersion: 'tls13' })).toHaveLength(1)
  })

  test('an old server is reached only where tls10 is allowed', async () => {
    const slapd = await start({ TLS_PRIORITY: 'NORMAL:-VERS-ALL:+VERS-TLS1.0' })
    const settings = settingsFor(slapd.tlsUrl, { certificate: slapd.ca })
    expect((await failureOf(find(settings))).class).toBe('unavailable')
    expect(await find({ ...settings, tlsMinVersion: 'tls10' })).toHaveLength(1)
  })

  test('a client certificate is shown; a key that is none is told without being quoted', async () => {
    const slapd = await start({ TLS_CLIENT: 'demand' })
    const settings = settingsFor(slapd.tlsUrl, { certificate: slapd.ca })
    expect((await failureOf(find(settings))).class).toBe('unavailable')
    const clientCertificate = await slapd.tls('client.crt')
    const clientKey = new Secret(await slapd.tls('client.key'))
    expect(await find({ ...settings, clientCertificate, clientKey })).toHaveLength(1)
    const bad = { ...settings, clientCertificate, clientKey: new Secret('pl4nted') }
    const error = await failureOf(find(bad))
    expect(`${error.message} ${String(error.cause)}`).not.toContain('pl4nted')
  })
})

describe.skipIf(!slapdAvailable())('servers that fail', () => {
  let first: Slapd
  let second: Slapd
  beforeEach(async () => {
    ;[first, second] = await Promise.all([startSlapd(), startSlapd()])
  })
  afterEach(() => Promise.all([first.stop(), second.stop()]))
  const find = (settings: ReturnType<typeof settingsFor>, through = door) =>
    through.withSession(settings, service('svc-reader'), never, async (session) => {
      await findUid('alice')(session)
      return session.server
    })

  test('a frozen server: bind, search and login end within the limits', async () => {
    const LIMIT_MS = 4_000
    const settings = settingsFor(first.url, { connectionTimeoutMs: LIMIT_MS, requestTimeoutMs: LIMIT_MS })
    await find(settings)
    await door.verify(settings, identity(ALICE, 'alice-secret'), never)
    await first.freeze()
    const timed = async (work: Promise<unknown>) => {
      const began = performance.now()
      expect((await failureOf(work)).class).toBe('unavailable')
      return performance.now() - began
    }
    const handshake = { connectionTimeoutMs: LIMIT_MS, requestTimeoutMs: 60_000, certificate: first.ca }
    const took = await Promise.all([
      // A pooled connection that does not answer is not tried again on another one: that would double the time.
      timed(find(settings)),
      timed(door.verify(settings, identity(ALICE, 'alice-secret'), never)),
      // The pooled one is taken, so this is a new one.
      timed(find(settings)),
      timed(find(settingsFor(first.tlsUrl, handshake))),
      timed(find(settingsFor(first.url, { ...handshake, startTls: true }))),
    ])
    for (const ms of took) expect(ms).toBeLessThan(1.95 * LIMIT_MS)
    first.thaw()
    door.forget(settings)
    expect(await find(settings)).toBe(first.url)
  })

  test('the second server is used when the first is dead, and remembered', async () => {
    const settings = settingsFor([first.url, second.url])
    expect(await find(settings)).toBe(first.url)
    await first.crash()
    expect(await find(settings)).toBe(second.url)
    expect(await door.verify(settings, identity(ALICE, 'alice-secret'), never)).toBe(true)
  })

  test('a frozen first server costs its time limit once, not with each call', async () => {
    await using silent = await serveScripted(() => undefined)
    // Its back-off never ends.
    await using own = createDirectoryDoor({ clock: { ...systemClock, monotonicMs: () => 0 }, random: systemRandom })
    const settings = settingsFor([silent.url, second.url], { requestTimeoutMs: 3_000 })
    expect(await find(settings, own)).toBe(second.url)
    expect(silent.accepted).toBe(1)
    own.forget(settingsFor(second.url))
    expect(await find(settings, own)).toBe(second.url)
    expect(await own.verify(settings, identity(ALICE, 'alice-secret'), never)).toBe(true)
    expect(silent.accepted).toBe(1)
  })

  test('asked for one server, no other is asked', async () => {
    const settings = settingsFor([first.url, second.url])
    await first.crash()
    const error = await failureOf(door.verify(settings, identity(ALICE, 'alice-secret'), never, { server: first.url }))
    expect(error.class).toBe('unavailable')
    expect(await door.verify(settings, identity(ALICE, 'alice-secret'), never, { server: second.url })).toBe(true)
  })

  test('all servers down: one error that names each', async () => {
    await Promise.all([first.crash(), second.crash()])
    const error = await failureOf(find(settingsFor([first.url, second.url])))
    expect(error).toMatchObject({ class: 'unavailable', kind: 'unavailable' })
    expect(error.message).toContain(new URL(first.url).host)
    expect(error.message).toContain(new URL(second.url).host)
  })

  test('a server that was restarted: searches, modifies and logins go on without an error', async () => {
    const settings = settingsFor(first.url)
    await find(settings)
    await door.verify(settings, identity(ALICE, 'alice-secret'), never)
    await first.crash()
    await first.again()
    expect(await find(settings)).toBe(first.url)
    expect(await door.verify(settings, identity(ALICE, 'alice-secret'), never)).toBe(true)
  })
})

test('the part with a real directory runs where slapd is installed', () => {
  expect(slapdAvailable()).toBe(existsSync('/usr/sbin/slapd') && existsSync('/usr/bin/ldapmodify'))
})
