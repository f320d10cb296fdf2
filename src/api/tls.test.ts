import { X509Certificate } from 'node:crypto'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TestClock } from '../../test/support/test-clock.ts'
import { systemRandom } from '../lib/random.ts'
import { ensureOwnPair, type TlsPair } from './tls.ts'

const DAY_MS = 86_400_000
const names = ['localhost', 'keyturn.example', '127.0.0.1', '::1']
let directory: string
let clock: TestClock

beforeEach(async () => {
  directory = path.join(await mkdtemp(path.join(tmpdir(), 'kt-tls-')), 'tls')
  clock = new TestClock()
})
afterEach(() => rm(path.dirname(directory), { recursive: true, force: true }))

const ensure = () => ensureOwnPair({ directory, names }, { clock, random: systemRandom })
const read = (name: string) => readFile(path.join(directory, name), 'utf8')

async function expectWhole(pair: TlsPair): Promise<void> {
  const certificate = new X509Certificate(pair.cert)
  const ca = new X509Certificate(await read('ca.crt'))
  expect(certificate.verify(ca.publicKey) && certificate.checkIssued(ca)).toBe(true)
  expect(certificate.validToDate.getTime()).toBeGreaterThan(clock.now().getTime() + 29 * DAY_MS)
  expect(certificate.validFromDate.getTime()).toBeLessThan(clock.now().getTime())
}

test('makes a CA and a certificate for every name, and keys for its owner alone', async () => {
  const pair = await ensure()
  await expectWhole(pair)
  const certificate = new X509Certificate(pair.cert)
  expect(certificate.checkHost('keyturn.example')).toBe('keyturn.example')
  expect(certificate.checkIP('127.0.0.1')).toBe('127.0.0.1')
  expect(certificate.ca).toBe(false)
  expect(certificate.publicKey.asymmetricKeyDetails?.namedCurve).toBe('prime256v1')
  const ca = new X509Certificate(await read('ca.crt'))
  expect(ca.ca).toBe(true)
  for (const key of ['ca.key', 'server.key']) expect((await stat(path.join(directory, key))).mode & 0o777).toBe(0o600)
})

test('keeps what it made, renews it before it ends under the same CA, and the CA before that ends', async () => {
  const first = await ensure()
  const ca = await read('ca.crt')
  await clock.advance(59 * DAY_MS)
  expect(await ensure()).toEqual(first)
  await clock.advance(2 * DAY_MS)
  const second = await ensure()
  expect(second.cert).not.toBe(first.cert)
  await expectWhole(second)
  expect(await read('ca.crt')).toBe(ca)
  await clock.advance(3550 * DAY_MS)
  await expectWhole(await ensure())
  expect(await read('ca.crt')).not.toBe(ca)
})

test.each(['ca.key', 'server.key', 'server.crt', 'ca.crt'])(
  'makes anew what a crash left half: %s of another',
  async (name) => {
    await ensure()
    const other = path.join(path.dirname(directory), 'other')
    await ensureOwnPair({ directory: other, names }, { clock, random: systemRandom })
    await writeFile(path.join(directory, name), await readFile(path.join(other, name)))
    await expectWhole(await ensure())
    expect(await ensure()).toEqual(await ensure())
  },
)

test.each(['bücher.example', 'BÜCHER.example.', 'fe80::1%lo', '2001:db8::1', 'Keyturn.Example'])(
  'a certificate for %s is current',
  async (name) => {
    const make = () => ensureOwnPair({ directory, names: [name] }, { clock, random: systemRandom })
    const first = await make()
    await expectWhole(first)
    expect(await make()).toEqual(first)
  },
)

test.each(['*.example', 'a b', 'a..b', 'http://a'])('%s is no name for a certificate', async (name) => {
  const made = ensureOwnPair({ directory, names: [name] }, { clock, random: systemRandom })
  await expect(made).rejects.toThrow(`"${name}" is no host name and no IP address`)
})

test('says which file it cannot use', async () => {
  await ensure()
  await writeFile(path.join(directory, 'ca.key'), 'nonsense')
  await expect(ensure()).rejects.toThrow(/ca\.key cannot be used/)
})
