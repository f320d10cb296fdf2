import { AppError, unavailable } from '../lib/errors.ts'
import type { OutputSecret } from '../schema/output-secret.ts'
import { no, type Statement } from './conditions.ts'
import {
  type Credential,
  decideOutput,
  holdsVersion,
  knownUid,
  outputFailure,
  outputMac,
  outputRequest,
  outputSynced,
  usableOutput,
  type WrittenSecret,
} from './output.ts'
import type { ReconcilerDeps } from './reconcile.ts'
import type { Resource } from './source/source.ts'

/** What the status says of the output Secret. */
export interface OutputState {
  readonly secret: WrittenSecret | undefined
  readonly secretMAC: string | undefined
}

/** How it stood before this reconcile. */
export interface OutputBefore extends OutputState {
  /** It was told already that the Secret is somebody else's. */
  readonly toldNotOwned: boolean
}

export interface OutputOutcome extends OutputState {
  readonly statement: Statement | undefined
  /** Tried again with back-off. */
  readonly retry?: AppError
}

const NOTHING: OutputOutcome = { secret: undefined, secretMAC: undefined, statement: undefined }

/**
 * Brings the output Secret to what is declared and known. A Secret that is no longer declared, or has another name now, is removed; an
 * unknown or empty credential never overwrites one. What the world refuses is said of the Secret and of nothing else.
 */
export async function syncOutput(
  deps: Pick<ReconcilerDeps, 'source' | 'sink' | 'mac'>,
  resource: Resource,
  output: OutputSecret | undefined,
  credential: Credential | undefined,
  before: OutputBefore,
): Promise<OutputOutcome> {
  try {
    return await sync(deps, resource, output, credential, before)
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    const reason = error.kind === 'unavailable' ? 'WriteFailed' : 'Refused'
    return {
      secret: before.secret,
      secretMAC: undefined,
      statement: no('SecretSynced', reason, error.message),
      retry: error,
    }
  }
}

async function sync(
  deps: Pick<ReconcilerDeps, 'source' | 'sink' | 'mac'>,
  resource: Resource,
  output: OutputSecret | undefined,
  credential: Credential | undefined,
  before: OutputBefore,
): Promise<OutputOutcome> {
  const { source, sink, mac } = deps
  const namespace = resource.metadata.namespace ?? ''
  const name = output?.name ?? resource.metadata.name
  if (before.secret && (!output || before.secret.name !== name)) await removeOutput(deps, namespace, before.secret)
  if (!output) return NOTHING
  const written = before.secret?.name === name ? before.secret : undefined
  if (!credential || credential.password.isEmpty || credential.username === '')
    return {
      secret: written,
      secretMAC: written && before.secretMAC,
      statement: no('SecretSynced', 'PasswordNotYetKnown', 'The engine does not know the password yet.'),
    }
  const seen = source.outputSecret({ namespace, name })
  const uid = knownUid(name, resource.metadata.uid, written, seen)
  const usable = usableOutput(output)
  // Keys whose template is wrong now stay as they are for as long as the password in them is right.
  if (usable !== output && written && holdsVersion(seen, written, credential))
    return { secret: written, secretMAC: before.secretMAC, statement: outputSynced(credential.version) }
  const request = outputRequest(resource, usable, credential, uid)
  const wantedMac = outputMac(mac, request)
  const step = decideOutput(request, wantedMac, { secret: written, mac: before.secretMAC }, seen)
  const remembered = (secretUid: string): OutputOutcome => ({
    secret: {
      name,
      uid: secretUid,
      ...(output.mode && { mode: output.mode }),
      ...(output.deletionPolicy && { deletionPolicy: output.deletionPolicy }),
    },
    secretMAC: wantedMac,
    statement: outputSynced(credential.version),
  })
  if (step === 'keep' && written) return remembered(written.uid)
  const answer = await sink.applySecret(request)
  if (answer.result !== 'written') {
    if (answer.result === 'not-owned' && !before.toldNotOwned)
      event(deps, resource, 'Warning', 'SecretNotOwned', answer.message)
    const statement = outputFailure(answer)
    // Rights are given without any change of the object.
    const retry = answer.result === 'forbidden' ? unavailable(answer.message) : undefined
    return { secret: written, secretMAC: undefined, statement, ...(retry && { retry }) }
  }
  if (step === 'correct')
    event(deps, resource, 'Normal', 'SecretDriftCorrected', `the Secret ${name} was not as we wrote it and is again`)
  else event(deps, resource, 'Normal', 'SecretWritten', `the Secret ${name} holds version ${credential.version}`)
  return remembered(answer.uid)
}

/**
 * Removes what we wrote for an object that is going; a statement says why that object must stay until it can be done. It need not where the
 * cluster takes the Secret away with its owner, nor where we may not do it: whoever took the rights away has the Secret.
 */
export async function releaseOutput(
  deps: Pick<ReconcilerDeps, 'sink'>,
  resource: Resource,
  written: WrittenSecret,
  output: OutputSecret | undefined,
): Promise<Statement | undefined> {
  const { deletionPolicy: before, ...secret } = written
  const deletionPolicy = output?.deletionPolicy ?? before
  try {
    await removeOutput(deps, resource.metadata.namespace ?? '', {
      ...secret,
      ...(deletionPolicy && { deletionPolicy }),
    })
    return undefined
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    event(deps, resource, 'Warning', 'SecretNotRemoved', `the Secret ${written.name} is left behind: ${error.message}`)
    const goesWithOwner = (written.mode ?? 'Create') === 'Create'
    return goesWithOwner || error.reason === 'forbidden' ? undefined : no('Deleting', 'SecretNotRemoved', error.message)
  }
}

/** Removes what we wrote, unless it shall stay. */
async function removeOutput(
  { sink }: Pick<ReconcilerDeps, 'sink'>,
  namespace: string,
  secret: WrittenSecret,
): Promise<void> {
  if (secret.deletionPolicy === 'Retain') return
  await sink.deleteSecret({ namespace, name: secret.name }, secret.uid, secret.mode ?? 'Create')
}

function event(
  { sink }: Pick<ReconcilerDeps, 'sink'>,
  resource: Resource,
  type: 'Normal' | 'Warning',
  reason: string,
  note: string,
) {
  sink.event(resource, { type, reason, note, action: 'WriteSecret' })
}
