import { unavailable } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import type { JsonPatchOperation, KubeClient } from './kube-client.ts'
import { isRecord, KubeError } from './kube-error.ts'
import { type KubeObject, SECRETS } from './kube-object.ts'

/*
 * Writes output Secrets by server-side apply under one manager: only our keys are ours, those of others survive, and a key
 * that we no longer send goes away. Each answer is metadata only, so that no value of anybody's Secret travels back.
 *
 * A Secret that stood there before is never taken over: creating is looking (404), applying without force, and demanding a 201.
 * Updating names the uid, so that a Secret deleted and made anew by somebody else is refused by the server.
 * Every step may be repeated after a crash: an identical apply changes nothing, not even the resource version.
 */

/** Who an object belongs to; garbage collection follows it. */
export interface OwnerReference {
  readonly apiVersion: string
  readonly kind: string
  readonly name: string
  readonly uid: string
}

/** A whole output Secret as it shall be; keys left out that we wrote earlier are removed. */
export interface SecretWriteRequest {
  readonly namespace: string
  readonly name: string
  readonly type: string
  readonly data: ReadonlyMap<string, Secret>
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly ownerReference?: OwnerReference
  /** The uid of the Secret that we made (or merged into) before, from the resource's status. */
  readonly uid?: string
  /** `Create`: the Secret is ours alone. `Merge`: it must exist and we own only our keys of it. */
  readonly mode: 'Create' | 'Merge'
}

/** What became of a write. Everything but `written` changed nothing. */
export type SecretWriteResult =
  | { readonly result: 'written'; readonly uid: string; readonly resourceVersion: string }
  /** Somebody else's Secret has this name, or somebody else's key would be overwritten. */
  | { readonly result: 'not-owned'; readonly message: string }
  /** Mode `Merge` and no such Secret. */
  | { readonly result: 'missing'; readonly message: string }
  | { readonly result: 'forbidden'; readonly message: string }
  | { readonly result: 'namespace-terminating'; readonly message: string }

export interface SecretWriterOptions {
  /** The field manager of output Secrets; finalizers and status have others. */
  readonly manager: string
  /** The label with the uid of the owning resource: proof that a Secret is ours when a crash lost its uid. */
  readonly ownerLabel: string
}

export class SecretWriter {
  readonly #client: KubeClient
  readonly #options: SecretWriterOptions

  constructor(client: KubeClient, options: SecretWriterOptions) {
    this.#client = client
    this.#options = options
  }

  /** Throws only where trying again can help, or where the request itself is wrong. */
  async apply(request: SecretWriteRequest): Promise<SecretWriteResult> {
    try {
      if (request.mode === 'Merge') return await this.#merge(request)
      return request.uid === undefined ? await this.#create(request) : await this.#update(request, request.uid)
    } catch (error) {
      return refusal(request, error)
    }
  }

  /** Mode `Create`: deletes the Secret of that uid. Mode `Merge`: takes our keys, labels and annotations out of it. */
  async remove(ref: { namespace: string; name: string }, uid: string, mode: 'Create' | 'Merge'): Promise<void> {
    if (mode === 'Create') {
      await this.#client.delete(SECRETS, ref, { uid, metadataOnly: true })
      return
    }
    await this.#withdraw(ref, uid)
  }

  async #create(request: SecretWriteRequest): Promise<SecretWriteResult> {
    const before = await this.#find(request)
    if (before) return this.#isOurs(before, request) ? this.#updateSeen(request, before) : notOwned(request)
    try {
      const { status, object } = await this.#client.apply(SECRETS, request, bodyOf(request), this.#calls(false))
      if (status === 201) return written(object)
      // Somebody made it since we looked, with keys unlike ours: give back what we put in.
      await this.#withdraw(request, object.metadata.uid)
      return notOwned(request)
    } catch (error) {
      // Made since we looked, with keys (409) or of a type (422) that contradict ours: nothing was written.
      if (isStatus(error, 409, 422) && (await this.#find(request))) return notOwned(request)
      throw error
    }
  }

  async #update(request: SecretWriteRequest, uid: string): Promise<SecretWriteResult> {
    try {
      const { object } = await this.#client.apply(SECRETS, request, bodyOf(request, uid), this.#calls(true))
      return written(object)
    } catch (error) {
      // Absent: 409. Another uid: 422, as is a request that is wrong in itself. What stands there now decides.
      if (!isStatus(error, 404, 409, 422)) throw error
      const found = await this.#find(request)
      if (!found) return this.#create(request)
      if (found.metadata.uid === uid) throw error
      return this.#isOurs(found, request) ? this.#updateSeen(request, found) : notOwned(request)
    }
  }

  async #updateSeen(request: SecretWriteRequest, seen: KubeObject): Promise<SecretWriteResult> {
    const { object } = await this.#client.apply(SECRETS, request, bodyOf(request, seen.metadata.uid), this.#calls(true))
    return written(object)
  }

  async #merge(request: SecretWriteRequest): Promise<SecretWriteResult> {
    const found = await this.#find(request)
    const { namespace, name } = request
    const missing = { result: 'missing', message: `there is no Secret ${namespace}/${name} to merge into` } as const
    if (!found) return missing
    // The first time nobody's key may be overwritten; later our own keys are put right with force.
    const known = found.metadata.uid === request.uid
    if (this.#isAnothers(found, request, known)) return notOwned(request)
    if (!known && textKeysOf(found).some((key) => request.data.has(key))) return notOwned(request)
    try {
      const body = bodyOf(request, found.metadata.uid)
      const { object } = await this.#client.apply(SECRETS, request, body, this.#calls(known))
      return written(object)
    } catch (error) {
      if (isStatus(error, 409)) return (await this.#find(request)) ? notOwned(request) : missing
      throw error
    }
  }

  /**
   * Gives back what we wrote, key by key, unless the Secret changes under our hands. An empty apply would take the whole map where the
   * other keys have no owner in the server's books: those that somebody applied as `stringData`.
   */
  async #withdraw(ref: { namespace: string; name: string }, uid: string | undefined): Promise<void> {
    for (let attempt = 0; attempt < 5; attempt++) {
      const found = await this.#find(ref)
      if (!found || found.metadata.uid !== uid) return
      const removals = removalsOf(found, this.#options.manager)
      if (removals.length === 0) return
      const test = { op: 'test', path: '/metadata/resourceVersion', value: found.metadata.resourceVersion } as const
      try {
        await this.#client.jsonPatch(SECRETS, ref, [test, ...removals], { metadataOnly: true })
        return
      } catch (error) {
        // A failed test is a 422.
        if (!isStatus(error, 404, 409, 422)) throw error
      }
    }
    throw unavailable(`the Secret ${ref.namespace}/${ref.name} keeps changing`)
  }

  #find({ namespace, name }: { namespace: string; name: string }): Promise<KubeObject | undefined> {
    return this.#client.get(SECRETS, { namespace, name }, { metadataOnly: true })
  }

  #isOurs(found: KubeObject, request: SecretWriteRequest): boolean {
    const { ownerLabel } = this.#options
    const owner = request.labels[ownerLabel]
    return owner !== undefined && found.metadata.labels?.[ownerLabel] === owner && this.#isApplied(found)
  }

  /** What we wrote for another resource: the server knows only one of us, and would let one resource take the keys of the other. */
  #isAnothers(found: KubeObject, request: SecretWriteRequest, known: boolean): boolean {
    const { ownerLabel } = this.#options
    const owner = found.metadata.labels?.[ownerLabel]
    return this.#isApplied(found) && owner !== request.labels[ownerLabel] && !(known && owner === undefined)
  }

  #isApplied(found: KubeObject): boolean {
    const { manager } = this.#options
    return found.metadata.managedFields?.some((f) => f.manager === manager && f.operation === 'Apply') ?? false
  }

  #calls(force: boolean) {
    return { manager: this.#options.manager, force, metadataOnly: true }
  }
}

/** The data keys that still hold what `manager` applied; whoever edits or removes one takes it out of this list. */
export function managedKeysOf(secret: KubeObject, manager: string): string[] {
  const ours = secret.metadata.managedFields?.find((f) => f.manager === manager && f.operation === 'Apply')
  return fieldNames(isRecord(ours?.fieldsV1) ? ours.fieldsV1['f:data'] : undefined)
}

/** Keys that somebody applied as `stringData`: the server does not count them as owned, so it would not defend them. */
function textKeysOf(secret: KubeObject): string[] {
  return (secret.metadata.managedFields ?? []).flatMap(({ fieldsV1 }) =>
    isRecord(fieldsV1) ? fieldNames(fieldsV1['f:stringData']) : [],
  )
}

/** What takes away all that `manager` applied. */
function removalsOf(secret: KubeObject, manager: string): JsonPatchOperation[] {
  const ours = secret.metadata.managedFields?.find((f) => f.manager === manager && f.operation === 'Apply')
  const fields = isRecord(ours?.fieldsV1) ? ours.fieldsV1 : {}
  const metadata = isRecord(fields['f:metadata']) ? fields['f:metadata'] : {}
  const maps = [
    ['/data', fields['f:data']],
    ['/metadata/labels', metadata['f:labels']],
    ['/metadata/annotations', metadata['f:annotations']],
  ] as const
  const keys = maps.flatMap(([path, owned]) =>
    fieldNames(owned).map((name) => `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`),
  )
  const owners = isRecord(metadata['f:ownerReferences']) ? Object.keys(metadata['f:ownerReferences']) : []
  const references = (secret.metadata.ownerReferences ?? []).flatMap(({ uid }, index) =>
    owners.includes(`k:${JSON.stringify({ uid })}`) ? [`/metadata/ownerReferences/${index}`] : [],
  )
  return [...keys, ...references.reverse()].map((path) => ({ op: 'remove', path }))
}

/** The names in one level of a managed fields tree. */
function fieldNames(fields: unknown): string[] {
  return Object.keys(isRecord(fields) ? fields : {}).flatMap((key) => (key.startsWith('f:') ? [key.slice(2)] : []))
}

function bodyOf(request: SecretWriteRequest, uid?: string): object {
  const { namespace, name, mode, labels, annotations, ownerReference } = request
  // Never `stringData`: a key dropped from it later would stay in the Secret.
  const data = Object.fromEntries(
    [...request.data].map(([key, value]) => [key, Buffer.from(value.reveal(), 'utf8').toString('base64')]),
  )
  const owner = ownerReference && { ...ownerReference, controller: true, blockOwnerDeletion: false }
  const whole = mode === 'Create' && { type: request.type }
  const metadata = { namespace, name, labels, annotations, ...(uid && { uid }) }
  return { metadata: { ...metadata, ...(mode === 'Create' && owner && { ownerReferences: [owner] }) }, ...whole, data }
}

function written({ metadata }: KubeObject): SecretWriteResult {
  return { result: 'written', uid: metadata.uid ?? '', resourceVersion: metadata.resourceVersion ?? '' }
}

function notOwned({ namespace, name }: SecretWriteRequest): SecretWriteResult {
  return { result: 'not-owned', message: `the Secret ${namespace}/${name} or a key of it belongs to somebody else` }
}

function refusal({ namespace, name }: SecretWriteRequest, error: unknown): SecretWriteResult {
  if (!(error instanceof KubeError)) throw error
  if (error.causes.includes('NamespaceTerminating') || error.status === 404)
    return { result: 'namespace-terminating', message: `the namespace ${namespace} is going or gone` }
  if (error.status === 403)
    return { result: 'forbidden', message: `the controller may not write Secrets in the namespace ${namespace}` }
  // The server's own words may quote what was sent.
  const { status, statusReason } = error
  throw new KubeError(`write Secret ${namespace}/${name}`, { status, statusReason })
}

function isStatus(error: unknown, ...statuses: readonly number[]): boolean {
  return error instanceof KubeError && statuses.includes(error.status)
}
