import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import type net from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import tls from 'node:tls'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { DirectoryDoor, DirectorySettings, Session } from '../../src/engine/directory/directory.ts'
import { createDirectoryDoor } from '../../src/engine/directory/door.ts'
import { DirectoryError } from '../../src/engine/directory/errors.ts'
import { equals, present } from '../../src/engine/directory/filter.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { identity, settingsFor } from '../support/directory-settings.ts'
import {
  agreeable,
  answerTo,
  entry,
  message,
  OP,
  octets,
  resultBody,
  type ScriptedHandler,
  type ScriptedServer,
  serveScripted,
  startTlsScript,
  tlv,
} from '../support/scripted-ldap.ts'

// What no healthy server does: each case here is a way in which an LDAP client was seen to hang, lie or lose its identity.

const exec = promisify(execFile)
const never = new AbortController().signal
const WHO = identity('cn=who,dc=x', 'pl4nted-secret')
const CHANGES = [{ attribute: 'userPassword', values: [Buffer.from('pl4nted-new')] }]

let door: DirectoryDoor
const servers: ScriptedServer[] = []
beforeEach(() => {
  door = createDirectoryDoor({ clock: systemClock, random: systemRandom, limits: { idleMs: 60_000 } })
})
afterEach(async () => {
  await door[Symbol.asyncDispose]()
  for (const server of servers.splice(0)) await server[Symbol.asyncDispose]()
})

async function serve(handler: ScriptedHandler, onConnect?: (socket: net.Socket) => void): Promise<ScriptedServer> {
  const server = await serveScripted(handler, onConnect && { onConnect })
  servers.push(server)
  return server
}

const find = (session: Session) =>
  session.search({ base: 'dc=x', scope: 'sub', filter: equals('cn', 'found'), attributes: ['cn'] })
const inSession = <T>(settings: DirectorySettings, work: (session: Session) => Promise<T>) =>
  door.withSession(settings, WHO, never, work)

async function failureOf(work: Promise<unknown>): Promise<DirectoryError> {
  const error = await work.then(
    () => undefined,
    (error: unknown) => error,
  )
  expect(error).toBeInstanceOf(DirectoryError)
  const failure = error as DirectoryError // proven by the line above
  expect(failure.message).not.toContain('pl4nted')
  return failure
}

/** Far beyond `atOnce`. */
const PATIENT = { requestTimeoutMs: 60_000 }

/** Fails unless the work ends well before a patient time limit does it. */
async function atOnce<T>(work: Promise<T>): Promise<T> {
  const began = performance.now()
  const result = await work
  expect(performance.now() - began).toBeLessThan(20_000)
  return result
}

describe('a connection that is lost', () => {
  test('in the middle of a search: the next work binds again before it asks anything', async () => {
    let toDrop = 1
    const server = await serve((request, socket, scripted) => {
      if (request.op === OP.search && toDrop-- > 0) socket.destroy()
      else agreeable(request, socket, scripted)
    })
    const settings = settingsFor(server.url)
    expect((await failureOf(inSession(settings, find))).class).toBe('unavailable')
    door.forget(settings)
    expect(await inSession(settings, find)).toHaveLength(1)
    expect(server.requests.map(({ op }) => op)).toEqual([OP.bind, OP.search, OP.bind, OP.search])
  })

  test('in the middle of a search: the same session never comes back', async () => {
    const server = await serve((request, socket, scripted) => {
      if (request.op === OP.search) socket.destroy()
      else agreeable(request, socket, scripted)
    })
    const again = inSession(settingsFor(server.url), async (session) => {
      await find(session).catch(() => undefined)
      return session.replace('cn=found,dc=x', CHANGES)
    })
    // Nothing was sent, so the outcome is known.
    expect((await failureOf(again)).message).toContain('closed')
    expect(server.requests.some(({ op }) => op === OP.modify)).toBe(false)
    expect(server.accepted).toBe(1)
  })

  test('after a modify: the outcome is unknown, and the modify was sent once', async () => {
    const server = await serve((request, socket, scripted) => {
      if (request.op === OP.modify) socket.destroy()
      else agreeable(request, socket, scripted)
    })
    const settings = settingsFor(server.url)
    const work = async (session: Session) => {
      await find(session)
      await session.replace('cn=found,dc=x', CHANGES)
    }
    expect(await failureOf(inSession(settings, work))).toMatchObject({ class: 'unknown-outcome', kind: 'unavailable' })
    expect(server.requests.filter(({ op }) => op === OP.modify)).toHaveLength(1)
  })

  test('in the middle of a message: nothing of it is left for the next connection', async () => {
    let first = true
    const server = await serve((request, socket, scripted) => {
      if (request.op !== OP.search || !first) return agreeable(request, socket, scripted)
      first = false
      socket.write(entry(request.id, 'cn=half,dc=x').subarray(0, 7), () => socket.destroy())
    })
    const settings = settingsFor(server.url)
    await failureOf(inSession(settings, find))
    door.forget(settings)
    expect((await inSession(settings, find)).map(({ dn }) => dn)).toEqual(['cn=found,dc=x'])
  })

  test.each(['search', 'modify', 'bind'] as const)(
    'while it waited in the pool: a %s goes on with a new one',
    async (what) => {
      const server = await serve(agreeable)
      const settings = settingsFor(server.url)
      const work = {
        search: () => inSession(settings, find),
        modify: () => inSession(settings, (session) => session.replace('cn=found,dc=x', CHANGES)),
        bind: () => door.verify(settings, WHO, never),
      }[what]
      await work()
      for (const socket of server.open) socket.end()
      await expect.poll(() => server.open.size).toBe(0)
      await work()
      expect(server.accepted).toBe(2)
    },
  )

  test.each(['search', 'modify', 'bind'] as const)(
    'when a waiting one is used again: a %s goes on with a new one, once',
    async (what) => {
      let fresh = true
      let drops = 1
      const server = await serve((request, socket, scripted) => {
        // The pooled connection dies under the first request on it, as when a firewall forgot it.
        if (!fresh && drops-- > 0) socket.destroy()
        else agreeable(request, socket, scripted)
      })
      const settings = settingsFor(server.url)
      const work = {
        search: () => inSession(settings, find),
        modify: () => inSession(settings, (session) => session.replace('cn=found,dc=x', CHANGES)),
        bind: () => door.verify(settings, WHO, never),
      }[what]
      await work()
      fresh = false
      await work()
      expect(server.accepted).toBe(2)
      drops = 2
      if (what !== 'bind') expect((await failureOf(work())).class).toBe('unavailable')
    },
  )

  test('announced by the server (notice of disconnection): not used again', async () => {
    const notice = message(0, tlv(0x78, resultBody(52, 'shutting down'), octets('1.3.6.1.4.1.1466.20036', 0x8a)))
    const server = await serve(agreeable)
    const settings = settingsFor(server.url)
    await inSession(settings, find)
    for (const socket of server.open) socket.write(notice)
    await expect.poll(() => server.open.size).toBe(0)
    expect(await inSession(settings, find)).toHaveLength(1)
    expect(server.accepted).toBe(2)
  })

  test('unused beyond the idle limit: closed, with an unbind', async () => {
    const brief = createDirectoryDoor({ clock: systemClock, random: systemRandom, limits: { idleMs: 40 } })
    const server = await serve(agreeable)
    await brief.withSession(settingsFor(server.url), WHO, never, find)
    await expect.poll(() => server.open.size).toBe(0)
    expect(server.requests.at(-1)?.op).toBe(OP.unbind)
    await brief[Symbol.asyncDispose]()
  })
})

describe('answers that are none', () => {
  const wrong: [string, (id: number) => Buffer][] = [
    ['a message of an unknown kind', (id) => message(id, tlv(0x79))],
    ['an answer to another request', (id) => message(id + 7, tlv(0x65, resultBody(0)))],
    ['the answer to a bind', (id) => message(id, tlv(0x61, resultBody(0)))],
    ['text', () => Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
    ['a length without end', () => Buffer.from([0x30, 0x80, 0, 0])],
    ['a message of 4 GB', () => Buffer.from([0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0x02])],
    ['an empty message', () => Buffer.from([0x30, 0])],
    [
      // ldapts's reader goes round for ever here: the set claims 40 octets and has 3.
      'a set that is longer than its message',
      (id) => {
        const set = Buffer.from([0x31, 0x28, 0x04, 0x01, 0x62])
        return message(id, tlv(0x64, octets(''), tlv(0x30, tlv(0x30, octets('a'), set))))
      },
    ],
    ['an entry cut off inside', (id) => message(id, tlv(0x64, octets('cn=x'), Buffer.from([0x30, 0x05, 0x30])))],
    [
      'controls that are none',
      (id) => message(id, tlv(0x65, resultBody(0)), Buffer.from([0xa0, 0x03, 0x30, 0x05, 0x04])),
    ],
  ]
  test.each(wrong)('%s ends the request at once', async (_, octetsFor) => {
    const server = await serve((request, socket, scripted) => {
      if (request.op === OP.search) socket.write(octetsFor(request.id))
      else agreeable(request, socket, scripted)
    })
    expect((await atOnce(failureOf(inSession(settingsFor(server.url, PATIENT), find)))).class).toBe('unavailable')
  })

  test.each(wrong)('%s after a modify leaves the outcome unknown', async (_, octetsFor) => {
    const server = await serve((request, socket, scripted) => {
      if (request.op === OP.modify) socket.write(octetsFor(request.id))
      else agreeable(request, socket, scripted)
    })
    const work = (session: Session) => session.replace('cn=found,dc=x', CHANGES)
    expect((await atOnce(failureOf(inSession(settingsFor(server.url, PATIENT), work)))).class).toBe('unknown-outcome')
  })

  test.each(wrong)('%s never passes for a bind that succeeded', async (name, octetsFor) => {
    const server = await serve((request, socket) => {
      if (request.op === OP.bind)
        socket.write(name === 'the answer to a bind' ? answerTo(request, 49) : octetsFor(request.id))
    })
    const proven = door.verify(settingsFor(server.url), WHO, never)
    if (name === 'the answer to a bind') expect(await proven).toBe(false)
    else await failureOf(proven)
  })

  test('an unknown message before the answer in one packet', async () => {
    const server = await serve((request, socket, scripted) => {
      if (request.op !== OP.search) return agreeable(request, socket, scripted)
      socket.write(Buffer.concat([message(99, tlv(0x79)), answerTo(request)]))
    })
    await atOnce(failureOf(inSession(settingsFor(server.url, PATIENT), find)))
  })
})

describe('answers that are odd, but right', () => {
  test('octet by octet, and many in one packet', async () => {
    for (const isSplit of [true, false]) {
      const server = await serve((request, socket) => {
        const found = [1, 2, 3].map((n) => entry(request.id, `cn=${n},dc=x`, { cn: ['x'.repeat(200)] }))
        const all = Buffer.concat([...(request.op === OP.search ? found : []), answerTo(request)])
        if (!isSplit) return void socket.write(all)
        socket.setNoDelay(true)
        for (const octet of all) socket.write(Buffer.from([octet]))
      })
      expect(await inSession(settingsFor(server.url), find)).toHaveLength(3)
    }
  })

  test('values are octets, whatever they are; an attribute may be called dn', async () => {
    const binary = Buffer.from([0xef, 0xbb, 0xbf, 0x00, 0xff])
    const server = await serve((request, socket) => {
      if (request.op === OP.search)
        socket.write(entry(request.id, 'cn=real,dc=x', { dn: ['cn=fake,dc=x'], Sid: [binary, 'text'] }))
      socket.write(answerTo(request))
    })
    const [found] = await inSession(settingsFor(server.url), find)
    expect(found?.dn).toBe('cn=real,dc=x')
    expect(found?.attributes.get('sid')).toEqual([binary, Buffer.from('text')])
    expect(found?.first('none')).toBeUndefined()
  })

  test('referrals among the entries are ignored, a referral as the answer is refused', async () => {
    let code = 0
    const server = await serve((request, socket) => {
      if (request.op === OP.search) {
        socket.write(message(request.id, tlv(0x73, octets('ldap://elsewhere.test/dc=x'))))
        socket.write(entry(request.id, 'cn=found,dc=x'))
      }
      socket.write(answerTo(request, request.op === OP.search ? code : 0))
    })
    const settings = settingsFor(server.url)
    expect(await inSession(settings, find)).toHaveLength(1)
    code = 10
    expect(await failureOf(inSession(settings, find))).toMatchObject({ class: 'refused', resultCode: 10 })
  })

  test('a result code nobody knows is a refusal', async () => {
    const server = await serve((request, socket) => socket.write(answerTo(request, request.op === OP.bind ? 0 : 123)))
    expect(await failureOf(inSession(settingsFor(server.url), find))).toMatchObject({
      class: 'refused',
      resultCode: 123,
    })
  })

  test("a server's text is not repeated", async () => {
    const server = await serve((request, socket) => socket.write(answerTo(request, 49, 'you sent pl4nted-secret')))
    expect((await failureOf(inSession(settingsFor(server.url), find))).class).toBe('bind-refused')
  })
})

describe('what is sent', () => {
  test.each([
    { mode: 'never', sent: 0 },
    { mode: 'searching', sent: 1 },
    { mode: 'finding', sent: 2 },
    { mode: 'always', sent: 3 },
  ] as const)('dereferencing $mode, the time limit and the size limit', async ({ mode, sent }) => {
    const server = await serve(agreeable)
    const settings = settingsFor(server.url, { dereferenceAliases: mode, requestTimeoutMs: 6_500 })
    await inSession(settings, (session) =>
      session.search({ base: 'dc=x', scope: 'sub', filter: present('cn'), attributes: [], sizeLimit: 2 }),
    )
    expect(server.requests.find(({ op }) => op === OP.search)?.search).toEqual({
      base: 'dc=x',
      deref: sent,
      sizeLimit: 2,
      timeLimit: 7,
    })
  })

  test('two requests at once on one session follow each other', async () => {
    const server = await serve(agreeable)
    const found = await inSession(settingsFor(server.url), (session) => Promise.all([find(session), find(session)]))
    expect(found.map((entries) => entries.length)).toEqual([1, 1])
    expect(server.accepted).toBe(1)
  })

  test('two first pieces of work at once both end', async () => {
    const server = await serve(agreeable)
    const settings = settingsFor(server.url, PATIENT)
    const all = await atOnce(
      Promise.all([inSession(settings, find), inSession(settings, find), door.verify(settings, WHO, never)]),
    )
    expect(all).toHaveLength(3)
  })

  test('a time-out of one request leaves others of the same identity alone', async () => {
    let held: net.Socket | undefined
    const server = await serve((request, socket, scripted) => {
      if (request.op === OP.search && !held) held = socket
      else if (socket !== held || request.op === OP.bind) agreeable(request, socket, scripted)
    })
    const settings = settingsFor(server.url, { requestTimeoutMs: 3_000 })
    const slow = failureOf(inSession(settings, find))
    await expect.poll(() => held !== undefined).toBe(true)
    expect(await inSession(settings, find)).toHaveLength(1)
    expect((await slow).message).toContain('time is over')
  })

  test('a paged search has one time limit for all its pages', async () => {
    const cookie = tlv(0x30, tlv(0x02, Buffer.from([0])), octets('more'))
    const control = tlv(0xa0, tlv(0x30, octets('1.2.840.113556.1.4.319'), tlv(0x04, cookie)))
    const server = await serve((request, socket) => {
      if (request.op === OP.bind) return void socket.write(answerTo(request))
      setTimeout(() => socket.write(message(request.id, tlv(0x65, resultBody(0)), control)), 20)
    })
    // It ends before the numbers of messages outgrow the one octet that the script has for them.
    const settings = settingsFor(server.url, { maxPageSize: 1, requestTimeoutMs: 2_000 })
    expect((await failureOf(inSession(settings, find))).message).toContain('time is over')
    expect(server.requests.filter(({ op }) => op === OP.search).length).toBeGreaterThan(1)
  })

  test('a password without a name, and a URL of another kind, are refused before anything is sent', async () => {
    const server = await serve(agreeable)
    await expect(door.verify(settingsFor(server.url), identity('', 'x'), never)).rejects.toMatchObject({
      kind: 'invalid',
    })
    const http = settingsFor(server.url.replace('ldap:', 'http:'))
    expect((await failureOf(door.verify(http, WHO, never))).class).toBe('refused')
    expect(server.accepted).toBe(0)
  })

  test('NODE_DEBUG=ldapts prints no password', async () => {
    const server = await serve(agreeable)
    const program = `
      import { createDirectoryDoor } from '${path.resolve('src/engine/directory/door.ts')}'
      import { identity, settingsFor } from '${path.resolve('test/support/directory-settings.ts')}'
      import { systemClock } from '${path.resolve('src/lib/clock.ts')}'
      import { systemRandom } from '${path.resolve('src/lib/random.ts')}'
      const door = createDirectoryDoor({ clock: systemClock, random: systemRandom })
      const change = [{ attribute: 'userPassword', values: [Buffer.from('pl4nted-new')] }]
      const who = identity('cn=who,dc=x', 'pl4nted-secret')
      await door.withSession(settingsFor('${server.url}'), who, new AbortController().signal, (s) => s.replace('cn=found,dc=x', change))
      await door[Symbol.asyncDispose]()
      console.log('done')`
    const env = { ...process.env, NODE_DEBUG: 'ldapts' }
    const ran = await exec(process.execPath, ['--input-type=module', '-e', program], { env })
    expect(ran.stdout).toContain('done')
    expect(server.requests.some(({ op }) => op === OP.modify)).toBe(true)
    expect(ran.stdout + ran.stderr).not.toContain('pl4nted')
    expect(ran.stderr).not.toContain(JSON.stringify([...Buffer.from('pl4nted-new')]).slice(1, -1))
  })
})

describe('StartTLS and certificates', () => {
  let work: string
  let context: { key: string; cert: string }
  const file = (name: string) => readFile(path.join(work, 'tls', name), 'utf8')
  const secure = (server: ScriptedServer, ca: string, more: Partial<DirectorySettings> = {}) =>
    settingsFor(server.url, { startTls: true, certificate: ca, connectionTimeoutMs: 5_000, ...more })
  beforeAll(async () => {
    work = await mkdtemp(path.join(tmpdir(), 'kt-tls-'))
    await exec(path.join(import.meta.dirname, '../support/slapd/tls.sh'), [work])
    context = { key: await file('server.key'), cert: await file('server.crt') }
  })
  afterAll(() => rm(work, { recursive: true, force: true }))

  test('octets in the clear after the answer are not taken for the answer to the bind', async () => {
    const forged = message(2, tlv(0x61, resultBody(0)))
    const refuse: Parameters<typeof startTlsScript>[2] = (request, socket) => socket.write(answerTo(request, 49))
    const ca = await file('ca.crt')
    const honest = await serve(startTlsScript(context, Buffer.alloc(0), refuse))
    expect(await door.verify(secure(honest, ca), WHO, never)).toBe(false)
    const liar = await serve(startTlsScript(context, forged, refuse))
    expect((await failureOf(door.verify(secure(liar, ca), WHO, never))).message).toContain('in the clear')
  })

  test('octets in the clear in a packet of their own never reach the session', async () => {
    const forged = message(2, tlv(0x61, resultBody(0)))
    const server = await serve((request, socket) => {
      if (request.op !== OP.extended) return
      socket.removeAllListeners('data')
      socket.setNoDelay(true)
      socket.write(answerTo(request), () => {
        // After the client's hello, so that it surely waits inside TLS.
        socket.once('data', () => socket.write(forged))
      })
    })
    await failureOf(door.verify(secure(server, await file('ca.crt')), WHO, never))
  })

  test('refused, answered with something else, never answered, closed: an error within the limit, and nothing is sent in the clear', async () => {
    const handlers: ScriptedHandler[] = [
      (request, socket) => socket.write(answerTo(request, 2)),
      (request, socket) => socket.write(message(request.id, tlv(0x61, resultBody(0)))),
      (_, socket) => socket.write('SSH-2.0-x\r\n'),
      () => undefined,
      (_, socket) => socket.destroy(),
      // Agrees, then says nothing; then talks nonsense; then hangs up.
      (request, socket) => socket.removeAllListeners('data').write(answerTo(request)),
      (request, socket) => socket.write(answerTo(request), () => socket.write('this is no TLS at all')),
      (request, socket) => socket.write(answerTo(request), () => socket.destroy()),
    ]
    const ca = await file('ca.crt')
    for (const handler of handlers) {
      const server = await serve(handler)
      const settings = secure(server, ca, { ...PATIENT, connectionTimeoutMs: 500 })
      const error = await atOnce(failureOf(door.verify(settings, WHO, never)))
      expect(error.class).toBe('unavailable')
      expect(server.requests.map(({ op }) => op)).not.toContain(OP.bind)
    }
  })

  test('a session over StartTLS that the server closes: the next one starts TLS and binds again', async () => {
    const inner: number[] = []
    const server = await serve(
      startTlsScript(context, Buffer.alloc(0), (request, socket) => {
        inner.push(request.op)
        if (request.op === OP.search && inner.length === 2) socket.destroy()
        else agreeable(request, socket, server)
      }),
    )
    const settings = secure(server, await file('ca.crt'))
    await failureOf(inSession(settings, find))
    door.forget(settings)
    expect(await inSession(settings, find)).toHaveLength(1)
    expect(inner).toEqual([OP.bind, OP.search, OP.bind, OP.search])
  })

  /** A certificate signed by the test CA (or `issuer`) with these options of openssl. */
  async function issue(name: string, extensions: string, options: string[] = [], issuer = 'ca'): Promise<void> {
    const dir = path.join(work, 'tls')
    await writeFile(path.join(dir, `${name}.ext`), extensions)
    const subject = `/CN=${name}`
    await exec(
      'openssl',
      [
        'req',
        '-new',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-keyout',
        `${name}.key`,
        '-subj',
        subject,
        '-out',
        `${name}.csr`,
      ],
      { cwd: dir },
    )
    const signer = ['-CA', `${issuer}.crt`, '-CAkey', `${issuer}.key`, '-CAcreateserial', '-days', '2']
    const into = ['-extfile', `${name}.ext`, '-in', `${name}.csr`, '-out', `${name}.crt`]
    await exec('openssl', ['x509', '-req', ...signer, ...into, ...options], { cwd: dir })
  }

  async function tlsServer(
    key: string,
    cert: string,
  ): Promise<{ url: string; bytes: () => number; close: () => void }> {
    let received = 0
    const server = tls.createServer({ key, cert, minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' }, (socket) => {
      socket
        .on('error', () => undefined)
        .on('data', (chunk) => {
          received += chunk.length
        })
    })
    server.on('tlsClientError', () => undefined)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    const port = typeof address === 'object' && address ? address.port : 0
    return { url: `ldaps://127.0.0.1:${port}`, bytes: () => received, close: () => server.close() }
  }
  const LEAF = 'subjectAltName=IP:127.0.0.1'

  test('a certificate for "localhost" only does not do for an address', async () => {
    await issue('onlylocal', 'subjectAltName=DNS:localhost')
    const local = { key: await file('onlylocal.key'), cert: await file('onlylocal.crt') }
    const server = await serve(
      startTlsScript(local, Buffer.alloc(0), (request, socket) => agreeable(request, socket, server)),
    )
    const ca = await file('ca.crt')
    expect((await failureOf(inSession(secure(server, ca), find))).message).toMatch(/altnames/i)
    const named = secure(server, ca, { urls: [server.url.replace('127.0.0.1', 'localhost')] })
    expect(await inSession(named, find)).toHaveLength(1)
  })

  test.each([
    { what: 'the certificate, RSA with SHA-1', leaf: ['-sha1'], intermediate: ['-sha256'] },
    { what: 'the certificate, RSA with MD5', leaf: ['-md5'], intermediate: ['-sha256'] },
    {
      what: 'the certificate, RSA-PSS with SHA-1',
      leaf: ['-sha1', '-sigopt', 'rsa_padding_mode:pss'],
      intermediate: ['-sha256'],
    },
    { what: 'an authority between', leaf: ['-sha256'], intermediate: ['-sha1'] },
  ])(
    'a weak signature on $what is refused at the lowest level too, before anything is sent',
    async ({ leaf, intermediate }) => {
      await issue('between', 'basicConstraints=critical,CA:TRUE', intermediate)
      await issue('leaf', LEAF, leaf, 'between')
      const server = await tlsServer(await file('leaf.key'), `${await file('leaf.crt')}${await file('between.crt')}`)
      try {
        for (const tlsMinVersion of ['tls10', 'tls12'] as const) {
          const settings = settingsFor(server.url, {
            certificate: await file('ca.crt'),
            tlsMinVersion,
            tlsMaxVersion: 'tls13',
            connectionTimeoutMs: 10_000,
            requestTimeoutMs: 300,
          })
          const error = await failureOf(inSession(settings, find))
          expect(error.message).toMatch(/SHA-1 or MD5|too weak|md too/i)
          if (tlsMinVersion === 'tls10') expect(error.message).toContain('SHA-1 or MD5')
        }
        expect(server.bytes()).toBe(0)
      } finally {
        server.close()
      }
    },
  )

  test('an authority between that is signed with SHA-1 is not hidden behind one of its name and key that nobody trusts', async () => {
    const dir = path.join(work, 'tls')
    const authority = ['-addext', 'basicConstraints=critical,CA:TRUE', '-days', '2']
    await exec(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-keyout',
        'evil.key',
        '-out',
        'evil.crt',
        '-subj',
        '/CN=evil',
        ...authority,
      ],
      { cwd: dir },
    )
    const extensions = 'basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=hash'
    await issue('between', extensions, ['-sha1'])
    // The same request signed by somebody else.
    const signer = ['-CA', 'evil.crt', '-CAkey', 'evil.key', '-CAcreateserial', '-sha256']
    const into = ['-extfile', 'between.ext', '-in', 'between.csr', '-out', 'decoy.crt']
    for (const days of ['-1', '2']) {
      await exec('openssl', ['x509', '-req', ...signer, ...into, '-days', days], { cwd: dir })
      await issue('leaf', LEAF, ['-sha256'], 'between')
      const [leaf, between, decoy] = await Promise.all(['leaf.crt', 'between.crt', 'decoy.crt'].map(file))
      for (const chain of [`${leaf}${decoy}${between}`, `${leaf}${between}${decoy}`]) {
        const server = await tlsServer(await file('leaf.key'), chain)
        try {
          const settings = settingsFor(server.url, {
            certificate: await file('ca.crt'),
            tlsMinVersion: 'tls10',
            connectionTimeoutMs: 10_000,
            requestTimeoutMs: 300,
          })
          const { message } = await failureOf(inSession(settings, find))
          expect(message).toMatch(/SHA-1 or MD5|not valid now|nobody who is trusted|unable to verify|certificate/i)
          expect(server.bytes()).toBe(0)
        } finally {
          server.close()
        }
      }
    }
  })

  test('RSA-PSS with SHA-256, and a root signed with SHA-1, do', async () => {
    const dir = path.join(work, 'tls')
    const root = [
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      'old.key',
      '-out',
      'old.crt',
      '-subj',
      '/CN=old',
      '-sha1',
    ]
    await exec('openssl', [...root, '-days', '2', '-addext', 'basicConstraints=critical,CA:TRUE'], { cwd: dir })
    await issue('good', LEAF, ['-sha256', '-sigopt', 'rsa_padding_mode:pss'], 'old')
    const server = await tlsServer(await file('good.key'), `${await file('good.crt')}${await file('old.crt')}`)
    try {
      const settings = settingsFor(server.url, {
        certificate: await file('old.crt'),
        tlsMinVersion: 'tls10',
        tlsMaxVersion: 'tls13',
        connectionTimeoutMs: 10_000,
        requestTimeoutMs: 2_000,
      })
      // The handshake passes: what fails is that nobody answers the bind.
      expect((await failureOf(inSession(settings, find))).message).toContain('time is over')
      await expect.poll(() => server.bytes()).toBeGreaterThan(0)
    } finally {
      server.close()
    }
  })
})
