import type { BindIdentity, DirectorySettings } from '../../src/engine/directory/directory.ts'
import { Secret } from '../../src/lib/secret.ts'
import { SUFFIX } from './slapd.ts'

/** Settings for one test server, short limits, no TLS. */
export function settingsFor(
  urls: string | readonly string[],
  more: Partial<DirectorySettings> = {},
): DirectorySettings {
  return {
    urls: typeof urls === 'string' ? [urls] : urls,
    connectionTimeoutMs: 2_000,
    requestTimeoutMs: 5_000,
    startTls: false,
    insecureTls: false,
    tlsMinVersion: 'tls12',
    tlsMaxVersion: 'tls12',
    dereferenceAliases: 'never',
    maxPageSize: 0,
    ...more,
  }
}

export function identity(name: string, password: string): BindIdentity {
  return { name, password: new Secret(password) }
}

/** A service account of the seeded slapd, such as `svc-manager`. */
export function service(name: string): BindIdentity {
  return identity(`cn=${name},ou=services,${SUFFIX}`, `${name}-secret`)
}
export const ANONYMOUS = identity('', '')
