import * as z from 'zod'
import { choice, flag, text } from './fields.ts'
import { keyRef, objectRef } from './references.ts'
import { type Rule, ruled } from './resource.ts'

const tlsVersion = () => choice(['tls10', 'tls11', 'tls12', 'tls13'])

const Tls = z.object({
  startTLS: flag().exactOptional().describe('Turn the plain connection into TLS before anything is sent.'),
  insecureSkipVerify: flag().exactOptional().describe("Do not verify the server's certificate. For tests only."),
  minVersion: tlsVersion().exactOptional().describe('Oldest TLS version; tls12 when absent.'),
  maxVersion: tlsVersion().exactOptional().describe('Newest TLS version; tls12 when absent.'),
  caConfigMapRef: keyRef().exactOptional().describe("CA certificates (PEM) in a ConfigMap of Keyturn's namespace."),
  caSecretRef: keyRef().exactOptional().describe("CA certificates (PEM) in a Secret of Keyturn's namespace."),
  caBundle: text(65_536).exactOptional().describe('CA certificates (PEM), inline.'),
  clientCertSecretRef: objectRef()
    .exactOptional()
    .describe("A kubernetes.io/tls Secret of Keyturn's namespace with the client certificate."),
})
type Input = z.input<typeof Tls>

export const tlsRules: Rule<Input>[] = [
  {
    message: 'only one of caConfigMapRef, caSecretRef and caBundle may be set',
    cel: '[has(self.caConfigMapRef), has(self.caSecretRef), has(self.caBundle)].filter(given, given).size() <= 1',
    check: (tls) => [tls.caConfigMapRef, tls.caSecretRef, tls.caBundle].filter((ca) => ca !== undefined).length <= 1,
  },
  {
    message: 'minVersion must not be above maxVersion (each is tls12 when absent)',
    cel: "(has(self.minVersion) ? self.minVersion : 'tls12') <= (has(self.maxVersion) ? self.maxVersion : 'tls12')",
    check: (tls) => (tls.minVersion ?? 'tls12') <= (tls.maxVersion ?? 'tls12'),
  },
]

/** How to reach a directory over TLS. */
export const tls = () => ruled(Tls, tlsRules)
export type Tls = z.output<typeof Tls>

/** StartTLS upgrades a plain connection: it makes no sense on one that is TLS from its first byte. */
export const startTlsNeedsPlainUrls: Rule<{ urls: string[]; tls?: Input }> = {
  message: 'tls.startTLS cannot be used with ldaps:// URLs',
  cel: "!(has(self.tls) && has(self.tls.startTLS) && self.tls.startTLS) || !self.urls.exists(url, url.startsWith('ldaps://'))",
  check: ({ urls, tls }) => tls?.startTLS !== true || !urls.some((url) => url.startsWith('ldaps://')),
}

/** Directory servers, tried in this order. */
export const urls = () =>
  z
    .array(text(512).regex(/^ldaps?:\/\/[^\s,]+$/, 'must be an ldap:// or ldaps:// URL'))
    .min(1)
    .max(8)
    .describe('Directory servers, tried in this order: ldap://host:port or ldaps://host:port.')

/** Path of a mount: segments of letters, digits, ".", "_" and "-", joined by "/". */
export const mountPath = () =>
  text(253).regex(
    /^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?(\/[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?)*$/,
    'must be a path of letters, digits, ".", "_" and "-", without slashes at its ends',
  )
