import { createPrivateKey, X509Certificate } from 'node:crypto'
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import path from 'node:path'
import { domainToASCII } from 'node:url'
import type { Clock } from '../lib/clock.ts'
import { type AppError, invalid, messageOf } from '../lib/errors.ts'
import type { Random } from '../lib/random.ts'

/**
 * Certificates of a server that was given none: a CA of its own, made at the first start, and a server certificate under it that is made anew
 * before it ends or when the server's names change. Clients are given `ca.crt`. The keys never leave their directory (0600).
 */
export interface OwnCa {
  readonly directory: string
  /** Host names and IP addresses that the certificate is for. `invalid` where one is neither. */
  readonly names: readonly string[]
}

export interface TlsPair {
  readonly cert: string
  readonly key: string
}

const DAY_MS = 86_400_000
const CA_DAYS = 3650
const SERVER_DAYS = 90
/** A certificate is replaced when less than this is left of it. */
const RENEW_DAYS = 30
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }

/** The certificate and key in two PEM files, checked to belong together. Throws `invalid` naming the files. */
export async function readPair({ certFile, keyFile }: { certFile: string; keyFile: string }): Promise<TlsPair> {
  try {
    const [cert, key] = await Promise.all([readFile(certFile, 'utf8'), readFile(keyFile, 'utf8')])
    const { createSecureContext } = await import('node:tls')
    createSecureContext({ cert, key })
    return { cert, key }
  } catch (cause) {
    throw invalid(`the certificate ${certFile} with the key ${keyFile} cannot be used: ${messageOf(cause)}`, { cause })
  }
}

/** The server's own certificate with its CA behind it, made or renewed when it must be. */
export async function ensureOwnPair(own: OwnCa, { clock, random }: { clock: Clock; random: Random }): Promise<TlsPair> {
  const file = (name: string) => path.join(own.directory, name)
  const names = own.names.map(certifiedName)
  await mkdir(own.directory, { recursive: true, mode: 0o700 })
  const x509 = await loadX509()
  const now = clock.now()

  const caKeyOf = async (certificate: string): Promise<CryptoKey | undefined> => {
    const pem = await readIfThere(file('ca.key'))
    if (pem === undefined) return undefined
    try {
      // A crash between the two files leaves a new key beside an old certificate.
      if (!belongTogether(certificate, pem)) return undefined
      return await crypto.subtle.importKey('pkcs8', x509.PemConverter.decodeFirst(pem), ALGORITHM, true, ['sign'])
    } catch (cause) {
      throw unusable(file('ca.key'), cause)
    }
  }
  const makeKeys = async () => {
    const keys = await crypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
    const pem = x509.PemConverter.encode(await crypto.subtle.exportKey('pkcs8', keys.privateKey), 'PRIVATE KEY')
    return { keys, pem: `${pem}\n` }
  }
  const validity = (days: number) => ({
    serialNumber: `00${random.bytes(16).toString('hex')}`,
    // Clocks differ a little.
    notBefore: new Date(now.getTime() - 3_600_000),
    notAfter: new Date(now.getTime() + days * DAY_MS),
    signingAlgorithm: ALGORITHM,
  })

  let caPem = await readIfThere(file('ca.crt'))
  let caKey = caPem === undefined ? undefined : await caKeyOf(caPem)
  if (caPem === undefined || caKey === undefined || !lastsLonger(caPem, now, SERVER_DAYS)) {
    const { keys, pem } = await makeKeys()
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      ...validity(CA_DAYS),
      name: `CN=Keyturn CA ${random.bytes(4).toString('hex')}`,
      keys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    })
    caPem = `${certificate.toString('pem')}\n`
    caKey = keys.privateKey
    await replaceFile(file('ca.key'), pem, 0o600)
    await replaceFile(file('ca.crt'), caPem, 0o644)
  }

  const cert = await readIfThere(file('server.crt'))
  const key = await readIfThere(file('server.key'))
  if (cert !== undefined && key !== undefined && isCurrent(cert, key, caPem, names, now))
    return { cert: cert + caPem, key }

  const ca = new x509.X509Certificate(caPem)
  const made = await makeKeys()
  const certificate = await x509.X509CertificateGenerator.create({
    ...validity(SERVER_DAYS),
    subject: 'CN=keyturn',
    issuer: ca.subject,
    publicKey: made.keys.publicKey,
    signingKey: caKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension(['1.3.6.1.5.5.7.3.1']),
      await x509.SubjectKeyIdentifierExtension.create(made.keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(ca),
      new x509.SubjectAlternativeNameExtension(
        names.map((name) => ({ type: isIP(name) === 0 ? ('dns' as const) : ('ip' as const), value: name })),
      ),
    ],
  })
  const pem = `${certificate.toString('pem')}\n`
  await replaceFile(file('server.key'), made.pem, 0o600)
  await replaceFile(file('server.crt'), pem, 0o644)
  return { cert: pem + caPem, key: made.pem }
}

/** A name as certificates have it: IP addresses without zone, host names in ASCII. */
function certifiedName(name: string): string {
  if (isIP(name) !== 0) return name.split('%', 1)[0] ?? ''
  const ascii = domainToASCII(name.replace(/\.$/, ''))
  if (!/^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/.test(ascii)) throw invalid(`"${name}" is no host name and no IP address`)
  return ascii
}

function isCurrent(cert: string, key: string, caPem: string, names: readonly string[], now: Date): boolean {
  try {
    const server = new X509Certificate(cert)
    const covered = names.every(
      (name) => (isIP(name) === 0 ? server.checkHost(name) : server.checkIP(name)) !== undefined,
    )
    const ours = server.verify(new X509Certificate(caPem).publicKey)
    return covered && ours && belongTogether(cert, key) && lastsLonger(cert, now, RENEW_DAYS)
  } catch {
    return false
  }
}

function belongTogether(certificate: string, key: string): boolean {
  return new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))
}

function lastsLonger(pem: string, now: Date, days: number): boolean {
  return new X509Certificate(pem).validToDate.getTime() - now.getTime() > days * DAY_MS
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw unusable(file, error)
  }
}

function unusable(file: string, cause: unknown): AppError {
  return invalid(`${file} cannot be used: ${messageOf(cause)}`, { cause })
}

async function replaceFile(file: string, text: string, mode: number): Promise<void> {
  const fresh = `${file}.new`
  await writeFile(fresh, text, { mode })
  await chmod(fresh, mode)
  await rename(fresh, file)
}

/** The library's dependency injection wants a reflection library at load time, and then only ever asks it for nothing. */
async function loadX509() {
  for (const name of ['getMetadata', 'getOwnMetadata', 'defineMetadata'])
    if (!Reflect.has(Reflect, name)) Reflect.set(Reflect, name, () => undefined)
  return import('@peculiar/x509')
}
