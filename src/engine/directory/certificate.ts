import { X509Certificate } from 'node:crypto'
import type { DetailedPeerCertificate, TLSSocket } from 'node:tls'
import { BerReader } from './ber.ts'

const WEAK_NAME = /sha-?1(?![0-9])|md[245]/i
const RSA_PSS = '2a864886f70d01010a'
const SHA1 = '2b0e03021a'

/**
 * Names the certificate of the peer's chain that is signed with SHA-1 or MD5; `undefined` when none is. A root's own signature proves
 * nothing and is not looked at. OpenSSL stops looking too once TLS 1.0 or 1.1 is allowed, which needs its security level 0.
 */
export function weakCertificate(socket: TLSSocket): string | undefined {
  const seen = new Set<string>()
  let peer: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true)
  while (peer?.raw && !seen.has(peer.fingerprint256)) {
    seen.add(peer.fingerprint256)
    const certificate = new X509Certificate(peer.raw)
    const isRoot = certificate.checkIssued(certificate) && certificate.verify(certificate.publicKey)
    if (!isRoot && isWeaklySigned(certificate)) return certificate.subject.split('\n').at(-1) ?? 'the certificate'
    peer = peer.issuerCertificate
  }
  return undefined
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
