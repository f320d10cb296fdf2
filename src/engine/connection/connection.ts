import { isDeepStrictEqual } from 'node:util'
import * as z from 'zod'
import { CONNECTION_DEFAULTS, TLS_VERSIONS } from '../../schema/ldap-connection.ts'
import type { BindIdentity, DirectorySettings } from '../directory/directory.ts'
import { secretCodec } from '../storage/store.ts'

/**
 * How a mount's configuration of its directory is stored, the same for login and for the secrets engine: what was given and nothing else, so that a
 * default may change without touching what somebody wrote. Durations in milliseconds.
 */

const flag = z.boolean().exactOptional()
const text = z.string().exactOptional()
const ms = z.number().exactOptional()

/** The shared fields of a stored configuration, for `z.object({ ...connectionRecord, … })`. */
export const connectionRecord = {
  /** The resource that owns the configuration, `cr:<uid>`. */
  owner: text,
  urls: z.array(z.string()).exactOptional(),
  caseSensitiveNames: flag,
  connectionTimeout: ms,
  requestTimeout: ms,
  startTLS: flag,
  tlsMinVersion: z.enum(TLS_VERSIONS).exactOptional(),
  tlsMaxVersion: z.enum(TLS_VERSIONS).exactOptional(),
  insecureTLS: flag,
  certificate: text,
  clientTlsCert: text,
  clientTlsKey: secretCodec.exactOptional(),
  bindDN: text,
  bindPassword: secretCodec.exactOptional(),
  userDN: text,
  userAttr: text,
  discoverDN: flag,
  denyNullBind: flag,
  upnDomain: text,
  userFilter: text,
  anonymousGroupSearch: flag,
  groupFilter: text,
  groupDN: text,
  groupAttr: text,
  usernameAsAlias: flag,
  dereferenceAliases: z.enum(['never', 'finding', 'searching', 'always']).exactOptional(),
  maxPageSize: z.int().exactOptional(),
  useTokenGroups: flag,
  enableSamaccountnameLogin: flag,
  usePre111GroupCnBehavior: flag,
  passwordPolicy: text,
  rotationPeriod: ms,
  rotationSchedule: text,
  rotationWindow: ms,
  disableAutomatedRotation: flag,
}
const connection = z.object(connectionRecord)
export type ConnectionRecord = z.output<typeof connection>

/** How to reach the directory, every default filled in. */
export function connectionSettings(config: ConnectionRecord): DirectorySettings {
  return {
    urls: config.urls ?? CONNECTION_DEFAULTS.urls,
    connectionTimeoutMs: config.connectionTimeout || CONNECTION_DEFAULTS.connectionTimeout,
    requestTimeoutMs: config.requestTimeout || CONNECTION_DEFAULTS.requestTimeout,
    startTls: config.startTLS ?? false,
    insecureTls: config.insecureTLS ?? false,
    tlsMinVersion: config.tlsMinVersion ?? CONNECTION_DEFAULTS.tlsMinVersion,
    tlsMaxVersion: config.tlsMaxVersion ?? CONNECTION_DEFAULTS.tlsMaxVersion,
    ...(config.certificate && { certificate: config.certificate }),
    ...(config.clientTlsCert && { clientCertificate: config.clientTlsCert }),
    ...(config.clientTlsKey && { clientKey: config.clientTlsKey }),
    dereferenceAliases: config.dereferenceAliases ?? CONNECTION_DEFAULTS.dereferenceAliases,
    maxPageSize: config.maxPageSize ?? 0,
  }
}

/** How a mount reaches its directory, and as whom. */
export interface MountConnection {
  readonly settings: DirectorySettings
  readonly identity: BindIdentity
}

/** Whether two configurations connect in the same way: what is known of one holds for the other. */
export function isSameConnection(a: MountConnection, b: MountConnection): boolean {
  return (
    a.identity.name === b.identity.name &&
    a.identity.password.equals(b.identity.password) &&
    (a.settings.clientKey?.reveal() ?? '') === (b.settings.clientKey?.reveal() ?? '') &&
    // Secrets look alike to it, and have been compared.
    isDeepStrictEqual(a.settings, b.settings)
  )
}
