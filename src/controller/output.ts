import type { Secret } from '../lib/secret.ts'
import { Secret as SecretText } from '../lib/secret.ts'
import type { OutputSecret } from '../schema/output-secret.ts'
import { API_VERSION } from '../schema/resource.ts'
import { parsePlaceholders, TemplateError } from '../template/placeholders.ts'
import { no, type Statement, yes } from './conditions.ts'
import type { Mac } from './mac.ts'
import type { OutputSecretMeta, Resource, SecretWriteRequest } from './source/source.ts'

/*
 * From a credential to the Secret that shows it. Pure but for the MAC; `secret-output.ts` writes.
 */

export const OWNER_LABEL = 'keyturn.dev/owner-uid'
const VERSION_ANNOTATION = 'keyturn.dev/credential-version'

/** A credential with its number. */
export interface Credential {
  readonly username: string
  readonly dn: string
  readonly password: Secret
  readonly previousPassword: Secret
  readonly version: number
  readonly lastRotation: Date | undefined
  /** Where it comes from, for people: `corp/demo/app`. */
  readonly source: string
}

/** What the status remembers of a Secret that was written. */
export interface WrittenSecret {
  readonly name: string
  readonly uid: string
  readonly mode?: 'Create' | 'Merge'
  readonly deletionPolicy?: 'Delete' | 'Retain'
}

const PLACES = ['Username', 'Password', 'DN']

/** Why the templates of an output cannot be used; undefined when they can. */
export function templateProblem(output: OutputSecret | undefined): string | undefined {
  const [first] = templateProblems(output)
  return first && `output.template.${first[0]}: ${first[1]}`
}

/** The output without the keys whose templates cannot be used: the same object where all can. */
export function usableOutput(output: OutputSecret): OutputSecret {
  const broken = new Set(templateProblems(output).map(([key]) => key))
  if (broken.size === 0) return output
  const usable = Object.entries(output.template ?? {}).filter(([key]) => !broken.has(key))
  return { ...output, template: Object.fromEntries(usable) }
}

function templateProblems(output: OutputSecret | undefined): [key: string, problem: string][] {
  return Object.entries(output?.template ?? {}).flatMap(([key, template]): [string, string][] => {
    try {
      parsePlaceholders(template, PLACES)
      return []
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error
      return [[key, error.message]]
    }
  })
}

/** Whether the Secret that we wrote is there and holds this version of the credential. */
export function holdsVersion(
  seen: OutputSecretMeta | undefined,
  { uid }: WrittenSecret,
  { version }: Credential,
): boolean {
  return seen?.uid === uid && seen.annotations[VERSION_ANNOTATION] === String(version)
}

/** The whole Secret as it shall be. The templates have been checked. */
export function outputRequest(
  resource: Resource,
  output: OutputSecret,
  credential: Credential,
  uid: string | undefined,
): SecretWriteRequest {
  const { name, namespace = '', uid: owner } = resource.metadata
  const mode = output.mode ?? 'Create'
  // The first password has none before it, and an empty one would be a key that lies.
  const hasPrevious = output.includePreviousPassword && !credential.previousPassword.isEmpty
  const data = new Map<string, Secret>([
    ['username', new SecretText(credential.username)],
    ['password', credential.password],
    ...(credential.dn === '' ? [] : [['dn', new SecretText(credential.dn)] as const]),
    ...(hasPrevious ? [['previous_password', credential.previousPassword] as const] : []),
  ])
  for (const [key, template] of Object.entries(output.template ?? {})) {
    const values = { Username: credential.username, Password: credential.password.reveal(), DN: credential.dn }
    data.set(key, new SecretText(parsePlaceholders(template, PLACES)(values)))
  }
  const isOwned = mode === 'Create' && output.deletionPolicy !== 'Retain'
  return {
    namespace,
    name: output.name ?? name,
    type: output.type ?? 'Opaque',
    mode,
    data,
    labels: {
      ...output.labels,
      'app.kubernetes.io/managed-by': 'keyturn',
      'keyturn.dev/managed': 'true',
      [OWNER_LABEL]: owner,
    },
    annotations: {
      ...output.annotations,
      [VERSION_ANNOTATION]: String(credential.version),
      ...(credential.lastRotation && {
        'keyturn.dev/last-rotation-time': credential.lastRotation.toISOString().replace(/\.\d+Z$/, 'Z'),
      }),
      'keyturn.dev/source': credential.source,
    },
    ...(isOwned && { ownerReference: { apiVersion: API_VERSION, kind: resource.kind, name, uid: owner } }),
    ...(uid !== undefined && { uid }),
  }
}

/** MAC of everything that the Secret shall be, so that any difference is one value. */
export function outputMac(mac: Mac, request: SecretWriteRequest): string {
  const pairs = (of: Readonly<Record<string, string>>) => Object.entries(of).sort(byName).flat()
  const data = [...request.data].sort(byName).flat()
  const owned = request.ownerReference ? 'owned' : 'free'
  return mac([
    request.type,
    request.mode,
    owned,
    ...pairs(request.labels),
    '',
    ...pairs(request.annotations),
    '',
    ...data,
  ])
}

export type OutputStep = 'write' | 'correct' | 'keep'

/**
 * Whether the Secret must be written. `correct`: it held this already and somebody changed it. Where the sink cannot tell the keys, the
 * MAC in the status alone decides.
 */
export function decideOutput(
  wanted: SecretWriteRequest,
  wantedMac: string,
  written: { readonly secret: WrittenSecret | undefined; readonly mac: string | undefined },
  seen: OutputSecretMeta | undefined,
): OutputStep {
  if (!written.secret || written.secret.name !== wanted.name || written.mac !== wantedMac) return 'write'
  if (!seen || seen.uid !== written.secret.uid) return 'correct'
  const keys = [...wanted.data.keys()]
  if (seen.managedKeys && !keys.every((key) => seen.managedKeys?.includes(key))) return 'correct'
  if (wanted.ownerReference && seen.owners?.includes(wanted.ownerReference.uid) === false) return 'correct'
  const lacks = (has: Readonly<Record<string, string>>, wants: Readonly<Record<string, string>>) =>
    Object.entries(wants).some(([name, value]) => has[name] !== value)
  return lacks(seen.labels, wanted.labels) || lacks(seen.annotations, wanted.annotations) ? 'correct' : 'keep'
}

/**
 * The uid by which a write proves that the Secret is ours: from the status, or, when we died between Secret and status, from the
 * Secret's own label. Undefined: it is to be made.
 */
export function knownUid(
  name: string,
  owner: string,
  written: WrittenSecret | undefined,
  seen: OutputSecretMeta | undefined,
): string | undefined {
  if (seen && seen.labels[OWNER_LABEL] === owner) return seen.uid
  if (written?.name !== name) return undefined
  // Not seen: gone, or without the labels by which we follow our own. The sink finds out by the uid. Another uid: somebody else's.
  return seen === undefined || seen.uid === written.uid ? written.uid : undefined
}

const FAILED = {
  'not-owned': 'NotOwned',
  missing: 'Missing',
  forbidden: 'Forbidden',
  'namespace-terminating': 'NamespaceTerminating',
} as const

export function outputFailure(answer: { readonly result: keyof typeof FAILED; readonly message: string }): Statement {
  return no('SecretSynced', FAILED[answer.result], answer.message)
}

export const outputSynced = (version: number) =>
  yes('SecretSynced', 'Synced', `The Secret holds version ${version} of the credential.`)

function byName([one]: readonly [string, unknown], [other]: readonly [string, unknown]): number {
  return one < other ? -1 : 1
}
