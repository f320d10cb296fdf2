import { createPrivateKey, X509Certificate } from 'node:crypto'
import { requireSchedule } from '../lib/cron.ts'
import { invalid } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'
import { choice, duration, flag, integer, names, secretText, text } from './fields.ts'

/**
 * What every configuration of a directory has in common: the LDAP login method and the LDAP secrets engine (8.1) share
 * these fields, their spelling over HTTP and the rules over them. Absent fields have the defaults of `CONNECTION_DEFAULTS`.
 */
export const TLS_VERSIONS = ['tls10', 'tls11', 'tls12', 'tls13'] as const
type TlsVersion = (typeof TLS_VERSIONS)[number]

const PEM_LIMIT = 256 * 1024

export const connectionFields = {
  urls: names(2048).describe('LDAP URLs, tried in this order.'),
  caseSensitiveNames: flag(),
  connectionTimeout: duration(),
  requestTimeout: duration(),
  startTLS: flag(),
  tlsMinVersion: choice(TLS_VERSIONS),
  tlsMaxVersion: choice(TLS_VERSIONS),
  insecureTLS: flag(),
  certificate: text(PEM_LIMIT).describe('CA certificates, PEM; they replace the roots of the system.'),
  clientTlsCert: text(PEM_LIMIT),
  clientTlsKey: secretText(PEM_LIMIT),
  bindDN: text(1024),
  bindPassword: secretText(1024),
  userDN: text(1024),
  userAttr: text(256),
  discoverDN: flag(),
  denyNullBind: flag(),
  upnDomain: text(256),
  userFilter: text(4096),
  anonymousGroupSearch: flag(),
  groupFilter: text(4096),
  groupDN: text(1024),
  groupAttr: text(256),
  usernameAsAlias: flag(),
  dereferenceAliases: choice(['never', 'finding', 'searching', 'always']),
  maxPageSize: integer({ min: 0, max: 2_147_483_647 }),
  useTokenGroups: flag(),
  enableSamaccountnameLogin: flag(),
  usePre111GroupCnBehavior: flag(),
  passwordPolicy: text(256),
  rotationPeriod: duration(),
  rotationSchedule: text(256),
  rotationWindow: duration(),
  disableAutomatedRotation: flag(),
}

/** HTTP names of the shared fields that are not plain snake_case. */
export const connectionSpelling = {
  urls: 'url',
  startTLS: 'starttls',
  insecureTLS: 'insecure_tls',
  bindDN: 'binddn',
  bindPassword: 'bindpass',
  userDN: 'userdn',
  userAttr: 'userattr',
  discoverDN: 'discoverdn',
  upnDomain: 'upndomain',
  userFilter: 'userfilter',
  groupFilter: 'groupfilter',
  groupDN: 'groupdn',
  groupAttr: 'groupattr',
  usePre111GroupCnBehavior: 'use_pre111_group_cn_behavior',
} as const

export const CONNECTION_DEFAULTS = {
  urls: ['ldap://127.0.0.1'],
  connectionTimeout: 30_000,
  requestTimeout: 90_000,
  tlsMinVersion: 'tls12',
  tlsMaxVersion: 'tls12',
  groupAttr: 'cn',
  userFilter: '({{.UserAttr}}={{.Username}})',
  groupFilter: '(|(memberUid={{.Username}})(member={{.UserDN}})(uniqueMember={{.UserDN}}))',
  dereferenceAliases: 'never',
} as const

/** Throws `invalid` naming the HTTP field of the first URL that cannot be used; returns them lower-cased. */
export function requireUrls(urls: readonly string[]): string[] {
  const found = urls.map((url) => url.trim().toLowerCase())
  if (found.length === 0 || found.includes(''))
    throw invalid('url must name at least one server, such as ldaps://dc1.example')
  for (const url of found) {
    const parsed = URL.canParse(url) ? new URL(url) : undefined
    if (!parsed || (parsed.protocol !== 'ldap:' && parsed.protocol !== 'ldaps:'))
      throw invalid('url: each must begin with ldap:// or ldaps:// and name a host')
    if (parsed.hostname === '') throw invalid('url: one of them names no host')
    if (parsed.username !== '' || !['', '/'].includes(parsed.pathname) || parsed.search !== '' || parsed.hash !== '')
      throw invalid(`url: "${parsed.protocol}//${parsed.host}" must have nothing but scheme, host and port`)
  }
  return found
}

// RFC 4512, 2.5: a name or an OID, with options.
const ATTRIBUTE = /^([A-Za-z][A-Za-z0-9-]*|\d+(\.\d+)+)(;[A-Za-z0-9-]+)*$/

/** Throws `invalid` naming the HTTP field where a text cannot be the name of an attribute. */
export function requireAttribute(name: string, field: string): void {
  if (!ATTRIBUTE.test(name)) throw invalid(`${field} is not the name of an attribute`)
}

/** The TLS settings of a whole configuration, as it would be after a write. */
export interface TlsFields {
  readonly tlsMinVersion?: TlsVersion
  readonly tlsMaxVersion?: TlsVersion
  readonly certificate?: string
  readonly clientTlsCert?: string
  readonly clientTlsKey?: Secret
}

/** Throws `invalid` where the TLS settings cannot work: unreadable PEM, SHA-1, a certificate without its key, an empty range. */
export function requireTls(config: TlsFields): void {
  const min = config.tlsMinVersion ?? CONNECTION_DEFAULTS.tlsMinVersion
  const max = config.tlsMaxVersion ?? CONNECTION_DEFAULTS.tlsMaxVersion
  if (TLS_VERSIONS.indexOf(max) < TLS_VERSIONS.indexOf(min))
    throw invalid(`tls_max_version (${max}) must not be below tls_min_version (${min})`)
  if (config.certificate) {
    for (const certificate of parseCertificates(config.certificate, 'certificate')) {
      // A root's own signature is never verified; any other in the bundle is, and with SHA-1 the connection would be refused.
      if (isSha1(certificate) && !certificate.checkIssued(certificate))
        throw invalid('certificate: it is signed with SHA-1, which is not accepted')
    }
  }
  const hasKey = config.clientTlsKey !== undefined && !config.clientTlsKey.isEmpty
  if (Boolean(config.clientTlsCert) !== hasKey)
    throw invalid('client_tls_cert and client_tls_key must be given together')
  if (config.clientTlsCert && config.clientTlsKey) {
    const [certificate] = parseCertificates(config.clientTlsCert, 'client_tls_cert')
    let matches: boolean | undefined
    try {
      matches = certificate?.checkPrivateKey(createPrivateKey(config.clientTlsKey.reveal()))
    } catch {
      throw invalid('client_tls_key is not a private key in PEM')
    }
    if (!matches) throw invalid('client_tls_key does not belong to client_tls_cert')
  }
}

function parseCertificates(pem: string, field: string): X509Certificate[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g)
  if (!blocks) throw invalid(`${field} holds no certificate in PEM`)
  return blocks.map((block) => {
    try {
      return new X509Certificate(block)
    } catch {
      throw invalid(`${field} is not a certificate in PEM`)
    }
  })
}

function isSha1(certificate: X509Certificate): boolean {
  return /sha-?1(?!\d)/i.test(certificate.signatureAlgorithm ?? '')
}

/** The rotation settings of a whole configuration, in milliseconds. */
export interface RotationFields {
  readonly rotationPeriod?: number
  readonly rotationSchedule?: string
  readonly rotationWindow?: number
}

const LEAST_PERIOD_MS = 5_000
const LEAST_WINDOW_MS = 3_600_000

/** The rules over the rotation settings (SPECIFICATION 7 and 8); throws `invalid` naming the field. */
export function requireRotation({
  rotationPeriod = 0,
  rotationSchedule = '',
  rotationWindow = 0,
}: RotationFields): void {
  if (rotationPeriod > 0 && rotationSchedule !== '')
    throw invalid('rotation_period and rotation_schedule must not be set together')
  if (rotationWindow > 0 && rotationPeriod > 0) throw invalid('rotation_window is not allowed with rotation_period')
  if (rotationWindow > 0 && rotationSchedule === '') throw invalid('rotation_window needs a rotation_schedule')
  if (rotationWindow > 0 && rotationWindow < LEAST_WINDOW_MS) throw invalid('rotation_window must be at least 1 hour')
  if (rotationPeriod > 0 && rotationPeriod < LEAST_PERIOD_MS)
    throw invalid('rotation_period must be at least 5 seconds')
  if (rotationSchedule !== '') requireSchedule(rotationSchedule, 'rotation_schedule')
}

/** Throws `invalid` where the braces of a filter template do not close. */
export function requireFilterTemplate(template: string, field: string): void {
  if (/\{\{|\}\}/.test(template.replace(/\{\{[^{}]*\}\}/g, ''))) throw invalid(`${field} is not a valid template`)
}
