import { X509Certificate } from 'node:crypto'
import net from 'node:net'
import tls from 'node:tls'
import { derived } from '../../lib/derived.ts'
import { messageOf } from '../../lib/errors.ts'
import { weakChain } from './certificate.ts'
import type { DirectorySettings, TlsVersion } from './directory.ts'
import { DirectoryError } from './errors.ts'
import { startTls } from './start-tls.ts'

/**
 * Opens one connection to one server: TCP, then StartTLS or TLS, all within one deadline. It is done here and not by ldapts, whose StartTLS reads
 * octets sent in the clear as part of the session, checks the certificate for the wrong name and has no time limit.
 */
export async function openSocket(
  url: string,
  settings: DirectorySettings,
  { signal, now }: { readonly signal: AbortSignal; readonly now: Date },
): Promise<net.Socket> {
  if (!/^ldaps?:\/\//i.test(url) || !URL.canParse(url))
    throw new DirectoryError('refused', `${url} is not an ldap:// or ldaps:// URL`, { server: url })
  const { protocol, hostname, port } = new URL(url)
  const secure = protocol === 'ldaps:'
  const host = hostname.replace(/^\[|\]$/g, '')
  const late = AbortSignal.timeout(settings.connectionTimeoutMs)
  const either = AbortSignal.any([late, signal])
  const socket = net.connect({
    host,
    port: port === '' ? (secure ? 636 : 389) : Number(port),
    noDelay: true,
    keepAlive: true,
  })
  try {
    await happens(socket, 'connect', either)
    if (settings.startTls && !secure) await startTls(socket, either)
    if (!secure && !settings.startTls) return socket
    return await secureSocket(socket, host, settings, { signal: either, now })
  } catch (error) {
    socket.on('error', () => undefined)
    socket.destroy()
    if (error instanceof DirectoryError) throw error
    const why = late.aborted ? `no connection within ${settings.connectionTimeoutMs / 1000} s` : messageOf(error)
    throw new DirectoryError('unavailable', `${url} cannot be reached: ${why}`, { cause: error, server: url })
  }
}

const TLS_VERSION: Record<TlsVersion, tls.SecureVersion> = {
  tls10: 'TLSv1',
  tls11: 'TLSv1.1',
  tls12: 'TLSv1.2',
  tls13: 'TLSv1.3',
}

async function secureSocket(
  socket: net.Socket,
  host: string,
  settings: DirectorySettings,
  { signal, now }: { readonly signal: AbortSignal; readonly now: Date },
): Promise<tls.TLSSocket> {
  // Below TLS its failures are told by the TLS socket.
  socket.on('error', () => undefined)
  const old = settings.tlsMinVersion === 'tls10' || settings.tlsMinVersion === 'tls11'
  const secure = tls.connect({
    socket,
    host,
    // A name is sent (and verified) for host names; an address is verified against the certificate's addresses.
    ...(net.isIP(host) === 0 && { servername: host }),
    rejectUnauthorized: !settings.insecureTls,
    minVersion: TLS_VERSION[settings.tlsMinVersion],
    maxVersion: TLS_VERSION[settings.tlsMaxVersion],
    // OpenSSL offers TLS 1.0 and 1.1 only at security level 0, which is why signatures are checked below.
    ...(old && { ciphers: 'DEFAULT@SECLEVEL=0' }),
    ...(settings.certificate && { ca: settings.certificate }),
    ...(settings.clientCertificate && { cert: settings.clientCertificate }),
    ...(settings.clientKey && { key: settings.clientKey.reveal() }),
  })
  try {
    await happens(secure, 'secureConnect', signal)
  } catch (error) {
    secure.on('error', () => undefined)
    secure.destroy()
    const range = `${settings.tlsMinVersion} to ${settings.tlsMaxVersion}`
    // The alert for "no common version"; the default maximum is TLS 1.2. Some servers hang up instead of saying so.
    if (/protocol version|unsupported protocol|no protocols available|handshake failure/i.test(messageOf(error)))
      throw new Error(`the server speaks no TLS version from ${range}; see tls_max_version`, { cause: error })
    if (/before secure TLS connection|closed the connection/i.test(messageOf(error)))
      throw new Error(
        `the server closed the connection in the TLS handshake; it may speak no version from ${range} (tls_min_version, tls_max_version) or want a client certificate`,
        { cause: error },
      )
    throw error
  }
  // SPECIFICATION 9: also where the lowest security level of OpenSSL no longer looks.
  const weak = settings.insecureTls ? undefined : weakChain(secure, authorities(settings), now)
  if (weak === undefined) return secure
  secure.on('error', () => undefined)
  secure.destroy()
  throw new Error(`the server's certificate is not accepted: ${weak}`)
}

/** The certificates that are trusted for these settings. */
const authorities = derived(({ certificate }: DirectorySettings): X509Certificate[] => {
  const pems = certificate?.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)
  return (pems ?? tls.getCACertificates('default')).map((pem) => new X509Certificate(pem))
})

/** Resolves when the event happens; rejects when the socket fails or closes before, or the signal aborts. */
export function happens(socket: net.Socket, event: 'connect' | 'secureConnect', signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (error?: unknown) => {
      socket.off(event, done).off('error', end).off('close', closed)
      signal.removeEventListener('abort', aborted)
      if (error === undefined) resolve()
      else reject(error)
    }
    const done = () => end()
    const closed = () => end(new Error('the server closed the connection while it was being set up'))
    const aborted = () => end(signal.reason)
    if (signal.aborted) return reject(signal.reason)
    socket.on(event, done).on('error', end).on('close', closed)
    signal.addEventListener('abort', aborted, { once: true })
  })
}
