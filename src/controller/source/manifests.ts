import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { LineCounter, parseAllDocuments } from 'yaml'
import { messageOf } from '../../lib/errors.ts'
import { findKind } from '../../schema/kinds.ts'
import { API_VERSION } from '../../schema/resource.ts'

/** Where a file of manifests stops being one. */
const FILE_LIMIT_BYTES = 4 * 1024 * 1024

/** One document of a manifest file. */
export interface Manifest {
  readonly file: string
  readonly kind: string
  readonly name: string
  readonly namespace?: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  /** The whole document: `spec` of our kinds, `data` of Secrets and ConfigMaps. */
  readonly body: Readonly<Record<string, unknown>>
}

/** What one file says, or why it could not be read. */
export type ManifestFile =
  | { readonly file: string; readonly manifests: readonly Manifest[] }
  | { readonly file: string; readonly problem: string }

interface KnownFile {
  readonly digest: string
  readonly said: ManifestFile
}

/** The manifests of a directory. Files that say what they said when they were last read are not parsed again. */
export class ManifestDirectory {
  readonly #directory: string
  #known = new Map<string, KnownFile>()

  constructor(directory: string) {
    this.#directory = directory
  }

  /** Reads every `.yaml`, `.yml` and `.json`, hidden ones apart, in the order of their names. Throws when the directory cannot be read. */
  async read(): Promise<ManifestFile[]> {
    const paths = (await this.#pathsIn(this.#directory)).sort()
    const known = new Map<string, KnownFile>()
    const files = await Promise.all(
      paths.map(async (path) => {
        const file = relative(this.#directory, path)
        try {
          const text = await readFile(path, 'utf8')
          const digest = createHash('sha256').update(text).digest('base64')
          const before = this.#known.get(file)
          const said = before?.digest === digest ? before.said : parseFile(file, text)
          known.set(file, { digest, said })
          return said
        } catch (error) {
          return { file, problem: messageOf(error) }
        }
      }),
    )
    this.#known = known
    return files
  }

  async #pathsIn(folder: string): Promise<string[]> {
    const entries = (await readdir(folder, { withFileTypes: true })).filter(({ name }) => !name.startsWith('.'))
    const paths = await Promise.all(
      entries.map(async (entry) => {
        const path = join(folder, entry.name)
        if (entry.isDirectory()) return this.#pathsIn(path)
        return /\.(ya?ml|json)$/.test(entry.name) ? [path] : []
      }),
    )
    return paths.flat()
  }
}

function parseFile(file: string, text: string): ManifestFile {
  if (text.length > FILE_LIMIT_BYTES) return { file, problem: 'the file is larger than 4 MiB' }
  try {
    return { file, manifests: parseManifests(file, text) }
  } catch (error) {
    return { file, problem: messageOf(error) }
  }
}

/** Throws where a document is not an object of Kubernetes. A message never quotes the text: it may hold a password. */
export function parseManifests(file: string, text: string): Manifest[] {
  const lineCounter = new LineCounter()
  const documents = parseAllDocuments(text, { prettyErrors: false, lineCounter })
  const manifests: Manifest[] = []
  const add = (value: unknown) => {
    if (value === null || value === undefined) return
    if (!isObject(value)) throw new Error('a document is not an object')
    if (value['kind'] === 'List' && Array.isArray(value['items'])) value['items'].forEach(add)
    else manifests.push(manifest(file, value))
  }
  for (const document of Array.isArray(documents) ? documents : []) {
    const [error] = document.errors
    if (error) {
      const { line, col } = lineCounter.linePos(error.pos[0])
      throw new Error(`not YAML: ${error.code} at line ${line}, column ${col}`)
    }
    add(document.toJS({ maxAliasCount: 100 }))
  }
  return manifests
}

function manifest(file: string, body: Record<string, unknown>): Manifest {
  const { apiVersion, kind, metadata } = body
  if (typeof kind !== 'string' || typeof apiVersion !== 'string' || !isObject(metadata))
    throw new Error('a document lacks apiVersion, kind or metadata')
  const { name, namespace } = metadata
  if (typeof name !== 'string' || !/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(name))
    throw new Error(`a ${kind} has no proper metadata.name`)
  const known = apiVersion === API_VERSION ? findKind(kind) : undefined
  if (!known && apiVersion.startsWith('keyturn.dev/')) throw new Error(`${apiVersion} has no kind ${kind}`)
  const clusterScoped = known?.scope === 'Cluster' || kind === 'Namespace'
  if (clusterScoped && namespace !== undefined)
    throw new Error(`${kind} ${name} is cluster-scoped: it has no namespace`)
  const home = namespace ?? 'default'
  if (typeof home !== 'string' || !/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(home))
    throw new Error(`${kind} ${name} has no proper metadata.namespace`)
  return {
    file,
    kind,
    name,
    ...(!clusterScoped && { namespace: home }),
    labels: texts(metadata['labels'], `${kind} ${name}: metadata.labels`),
    annotations: texts(metadata['annotations'], `${kind} ${name}: metadata.annotations`),
    body,
  }
}

function texts(value: unknown, what: string): Record<string, string> {
  if (value === undefined || value === null) return {}
  if (!isObject(value)) throw new Error(`${what} is not an object`)
  return Object.fromEntries(
    Object.entries(value).map(([name, text]) => {
      if (typeof text !== 'string') throw new Error(`${what}.${name} is not a text (quote it)`)
      return [name, text]
    }),
  )
}

/** The entries of a Secret or ConfigMap document. Throws naming the entry that is no text or no base64. */
export function entriesOf(manifest: Manifest): Map<string, string> {
  const entries = new Map<string, string>()
  const what = `${manifest.kind} ${manifest.namespace}/${manifest.name}`
  for (const [key, value] of Object.entries(texts(manifest.body['data'], `${what}: data`))) {
    if (manifest.kind !== 'Secret') entries.set(key, value)
    else if (/^[A-Za-z0-9+/\s]*={0,2}\s*$/.test(value)) entries.set(key, Buffer.from(value, 'base64').toString('utf8'))
    else throw new Error(`${what}: data.${key} is not base64 (plain text belongs into stringData)`)
  }
  if (manifest.kind === 'Secret')
    for (const [key, value] of Object.entries(texts(manifest.body['stringData'], `${what}: stringData`)))
      entries.set(key, value)
  return entries
}

/** A uid that the same object always gets again, so that the engine knows its owner even when our state is lost. */
export function derivedUid(kind: string, namespace: string | undefined, name: string): string {
  const bytes = createHash('sha256')
    .update(`keyturn.dev/${kind}/${namespace ?? ''}/${name}`)
    .digest()
    .subarray(0, 16)
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
