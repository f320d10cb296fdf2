import type { Fields } from '../client/transport.ts'
import type { Secret } from '../lib/secret.ts'
import type { Tls } from '../schema/tls.ts'
import { textOf } from './access.ts'
import { no, type Statement } from './conditions.ts'
import type { Mac } from './mac.ts'
import type { Source } from './source/source.ts'

/*
 * What the configurations of both LDAP mounts have in common: certificates and the bind password come from Secrets and ConfigMaps of the
 * central namespace, and what was applied is remembered as a MAC.
 */

/** The references of a spec, resolved. */
export interface Resolved {
  readonly bindPassword: Secret | undefined
  readonly ca: string
  readonly clientCert: string
  readonly clientKey: Secret | undefined
}

interface References {
  readonly bindPasswordSecretRef?: { readonly name: string; readonly key: string }
  readonly tls?: Tls
}

/** Reads what a spec names; a statement says what is missing. */
export async function resolveReferences(
  source: Pick<Source, 'readSecretKey' | 'readSecret' | 'readConfigMapKey'>,
  namespace: string,
  { bindPasswordSecretRef: bind, tls }: References,
): Promise<Resolved | { readonly statement: Statement }> {
  const missing = (what: string) => ({
    statement: no('Accepted', 'SecretNotFound', `${what} is missing in the namespace ${namespace}.`),
  })
  const bindPassword = bind && (await source.readSecretKey({ namespace, ...bind }))
  if (bind && (!bindPassword || bindPassword.isEmpty)) return missing(`The key ${bind.key} of the Secret ${bind.name}`)
  const { caConfigMapRef, caSecretRef, caBundle, clientCertSecretRef } = tls ?? {}
  let ca = caBundle ?? ''
  if (caConfigMapRef) {
    const found = await source.readConfigMapKey({ namespace, ...caConfigMapRef })
    if (!found) return missing(`The key ${caConfigMapRef.key} of the ConfigMap ${caConfigMapRef.name}`)
    ca = found
  }
  if (caSecretRef) {
    const found = await source.readSecretKey({ namespace, ...caSecretRef })
    if (!found) return missing(`The key ${caSecretRef.key} of the Secret ${caSecretRef.name}`)
    ca = found.reveal()
  }
  if (!clientCertSecretRef) return { bindPassword, ca, clientCert: '', clientKey: undefined }
  const pair = await source.readSecret({ namespace, name: clientCertSecretRef.name })
  const cert = pair?.get('tls.crt')
  const clientKey = pair?.get('tls.key')
  if (!cert || !clientKey) return missing(`tls.crt or tls.key of the Secret ${clientCertSecretRef.name}`)
  return { bindPassword, ca, clientCert: cert.reveal(), clientKey }
}

/** The fields of a directory configuration that every read returns as they were written. */
export function connectionFields(
  spec: { readonly urls: readonly string[]; readonly tls?: Tls },
  resolved: Resolved,
): Fields {
  const { tls } = spec
  return {
    url: spec.urls.join(',').toLowerCase(),
    starttls: tls?.startTLS ?? false,
    insecure_tls: tls?.insecureSkipVerify ?? false,
    tls_min_version: tls?.minVersion ?? 'tls12',
    tls_max_version: tls?.maxVersion ?? 'tls12',
    certificate: resolved.ca,
  }
}

/** What was applied last, as the status remembers it. */
export interface AppliedMacs {
  readonly bindSecretMAC?: string | undefined
  readonly configMAC?: string | undefined
  /** Of a configuration whose bind the directory refused. */
  readonly refusedConfigMAC?: string | undefined
}

export interface ConfigStep {
  /** Undefined: the engine has it all. */
  readonly write: Fields | undefined
  readonly bindSecretMAC: string | undefined
  readonly configMAC: string
}

/**
 * What to write to a mount's `config`. The bind password goes with it only when the Secret is not the one applied last (or the mount has no
 * configuration at all): after a rotation of the root password the Secret is stale by design and must not come back (b.3).
 * `readable` are fields that a read returns; `hidden` those that only a write has.
 */
export function decideConfig(
  readable: Fields,
  hidden: Fields,
  bindPassword: Secret | undefined,
  seen: { readonly config: Readonly<Record<string, unknown>> | undefined; readonly applied: AppliedMacs },
  mac: Mac,
): ConfigStep {
  const bindSecretMAC = bindPassword && mac(['bind', bindPassword])
  const configMAC = mac(['config', ...texts(hidden)])
  const isNew = seen.config === undefined || textOf(seen.config, 'binddn') === ''
  const isBindNew = bindPassword !== undefined && (isNew || bindSecretMAC !== seen.applied.bindSecretMAC)
  const isSame =
    seen.config !== undefined && configMAC === seen.applied.configMAC && changesOf(seen.config, readable).length === 0
  if (isSame && !isBindNew) return { write: undefined, bindSecretMAC, configMAC }
  return {
    write: { ...readable, ...hidden, ...(isBindNew && { bindpass: bindPassword }) },
    bindSecretMAC,
    configMAC,
  }
}

/** What a write would change of what can be read, as `field: before → after`. */
export function changesOf(seen: Readonly<Record<string, unknown>>, wanted: Fields): string[] {
  return Object.entries(wanted).flatMap(([name, value]) => {
    const [before, after] = [comparable(seen[name]), comparable(value)]
    return before === after ? [] : [`${name}: ${before} → ${after}`]
  })
}

/** MAC of all that a write would set. */
export function writeMac(write: Fields, mac: Mac): string {
  return mac(['write', ...texts(write)])
}

function texts(fields: Fields): (string | Secret)[] {
  return Object.entries(fields).flatMap(([name, value]) => [name, secretText(value)])
}

/** Lists are sets, absent is empty. */
function comparable(value: unknown): string {
  if (Array.isArray(value)) return JSON.stringify(value.map(String).sort())
  return JSON.stringify(value === undefined || value === null ? '' : value)
}

function secretText(value: Fields[string] | undefined): string | Secret {
  return typeof value === 'object' && value !== null && 'reveal' in value
    ? (value as Secret)
    : JSON.stringify(value ?? '')
}
