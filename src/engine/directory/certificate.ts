import { X509Certificate } from 'node:crypto'
import type { DetailedPeerCertificate, TLSSocket } from 'node:tls'
import { BerReader } from './ber.ts'

const WEAK_NAME = /sha-?1(?![0-9])|md[245]/i
const RSA_PSS = '2a864886f70d01010a'
const SHA1 = '2b0e03021a'

/**
 * Says what is wrong with the chain by which the peer's certificate is trusted; `undefined` when it holds: each certificate is signed by the next
 * and valid now, the last is one of `trusted` or signed by one, and none but a trusted one, whose own signature proves nothing, is signed with
 * SHA-1 or MD5. OpenSSL verified a chain of its own before; which one it does not tell, and with TLS 1.0 or 1.1 allowed, which needs its
 * security level 0, it no longer looks at signatures.
 */
export function weakChain(socket: TLSSocket, trusted: readonly X509Certificate[], now: Date): string | undefined {
  let peer: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true)
  for (let depth = 0; peer?.raw && depth < LONGEST_CHAIN; depth++) {
    const certificate = new X509Certificate(peer.raw)
    const name = certificate.subject.split('\n').at(-1) ?? 'a certificate'
    if (trusted.some(({ fingerprint256 }) => fingerprint256 === certificate.fingerprint256)) return undefined
    if (isWeaklySigned(certificate)) return `${name} is signed with SHA-1 or MD5`
    if (certificate.validFromDate > now || certificate.validToDate < now) return `${name} is not valid now`
    if (trusted.some((issuer) => isSignedBy(certificate, issuer))) return undefined
    const next: DetailedPeerCertificate | undefined = peer.issuerCertificate
    const issuer = next?.raw && new X509Certificate(next.raw)
    if (!issuer?.ca || !isSignedBy(certificate, issuer)) return `nobody who is trusted has signed ${name}`
    peer = next
  }
  return 'its chain of certificates does not end'
}

const LONGEST_CHAIN = 20

function isSignedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey)
}

function isWeaklySigned(certificate: X509Certificate): boolean {
  return WEAK_NAME.test(certificate.signatureAlgorithm ?? '') || isPssWithSha1(certificate.raw)
}

/** RSASSA-PSS names its hash in parameters, and means SHA-1 where it names none (RFC 4055, 3.1). */
function isPssWithSha1(der: Buffer): boolean {
  const certificate = new BerReader(der).inside(0x30)
  certificate.next()
  const algorithm = certificate.inside(0x30)
  if (algorithm.octets(0x06).toString('hex') !== RSA_PSS) return false
  if (algorithm.isAtEnd) return true
  const parameters = algorithm.inside(0x30)
  if (parameters.isAtEnd) return true
  const { tag, body } = parameters.next()
  return tag !== 0xa0 || new BerReader(body).inside(0x30).octets(0x06).toString('hex') === SHA1
}
