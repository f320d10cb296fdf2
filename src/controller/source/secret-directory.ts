import { createHash } from 'node:crypto'
import { lstat, mkdir, readdir, readFile, readlink, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { KeyedLock } from '../../lib/keyed-lock.ts'
import type { Random } from '../../lib/random.ts'
import type { SecretWriteRequest, SecretWriteResult } from '../runtime/secret-writer.ts'
import { replaceFile } from './atomic-file.ts'
import type { NamespacedName, OutputSecretMeta } from './source.ts'

/*
 * Secrets as files, `<folder>/<namespace>/<name>/<key>`, laid out as the kubelet does it: each key is a link through `..data` to a
 * directory of one version, and a change is the replacement of that one link. A reader that opens the directory behind `..data` never
 * sees old and new mixed. Files are 0600, directories 0700. `..keyturn.json` says that a directory is ours and what we put there;
 * a directory without it is somebody else's and is never touched.
 */

const MARK = '..keyturn.json'
const DATA = '..data'

interface Mark {
  readonly uid: string
  readonly mode: 'Create' | 'Merge'
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  /** Key → salted digest of what we wrote. */
  readonly keys: Readonly<Record<string, string>>
  readonly salt: string
}

export class SecretDirectory {
  readonly #folder: string
  readonly #random: Random
  readonly #locks = new KeyedLock()
  /** What the last look or write found. */
  readonly #known = new Map<string, OutputSecretMeta>()

  constructor(folder: string, random: Random) {
    this.#folder = folder
    this.#random = random
  }

  get(ref: NamespacedName): OutputSecretMeta | undefined {
    return this.#known.get(`${ref.namespace}/${ref.name}`)
  }

  /** Looks at every Secret of ours; returns those that are not as they were when last seen or written. */
  async scan(): Promise<NamespacedName[]> {
    const before = new Map(this.#known)
    const changed: NamespacedName[] = []
    const seen = new Set<string>()
    for (const namespace of await folders(this.#folder)) {
      for (const name of await folders(join(this.#folder, namespace))) {
        const key = `${namespace}/${name}`
        await this.#locks.run(key, async () => {
          const meta = await this.#look({ namespace, name })
          if (!meta) return
          seen.add(key)
          const known = this.#known.get(key)
          this.#known.set(key, meta)
          if (known && !sameKeys(known.managedKeys, meta.managedKeys)) changed.push({ namespace, name })
        })
      }
    }
    for (const [key, meta] of before) {
      if (seen.has(key) || this.#known.get(key) !== meta) continue
      this.#known.delete(key)
      const slash = key.indexOf('/')
      changed.push({ namespace: key.slice(0, slash), name: key.slice(slash + 1) })
    }
    return changed
  }

  /** The files of one Secret, ours or anybody's; undefined when there is no such directory. */
  async read(ref: NamespacedName): Promise<Map<string, string> | undefined> {
    const home = this.#home(ref)
    const names = await entries(home)
    if (names === undefined) return undefined
    const found = new Map<string, string>()
    for (const name of names.filter((name) => !name.startsWith('..'))) {
      const text = await readFile(join(home, name), 'utf8').catch(() => undefined)
      if (text !== undefined) found.set(name, text)
    }
    return found
  }

  /** Writes a whole Secret; keys of ours that are no longer wanted go. */
  async write(request: SecretWriteRequest): Promise<SecretWriteResult> {
    const key = `${request.namespace}/${request.name}`
    return this.#locks.run(key, async () => {
      const home = this.#home(request)
      const bad = [...request.data.keys()].find(
        (name) => !/^[-._a-zA-Z0-9]{1,253}$/.test(name) || /^\.\.?$|^\.\./.test(name),
      )
      if (bad !== undefined) return { result: 'not-owned', message: `"${bad}" cannot be the name of a file` }
      const mark = await readMark(home)
      const names = await entries(home)
      if (names === undefined && request.mode === 'Merge')
        return { result: 'missing', message: `the directory ${key} does not exist` }
      if (mark && request.uid !== mark.uid)
        return { result: 'not-owned', message: `the directory ${key} belongs to another resource` }
      if (!mark && names !== undefined && request.mode === 'Create')
        return { result: 'not-owned', message: `the directory ${key} exists and was not made by Keyturn` }
      const foreign = [...request.data.keys()].find(
        (name) => names?.includes(name) && !Object.hasOwn(mark?.keys ?? {}, name),
      )
      if (foreign !== undefined)
        return { result: 'not-owned', message: `the file ${key}/${foreign} was not made by Keyturn` }
      const next = await this.#replace(home, request, mark)
      this.#known.set(key, {
        uid: next.uid,
        labels: next.labels,
        annotations: next.annotations,
        managedKeys: Object.keys(next.keys).sort(),
      })
      return { result: 'written', uid: next.uid, resourceVersion: '' }
    })
  }

  async remove(ref: NamespacedName, uid: string): Promise<void> {
    const key = `${ref.namespace}/${ref.name}`
    await this.#locks.run(key, async () => {
      const home = this.#home(ref)
      const mark = await readMark(home)
      if (mark?.uid !== uid) return
      if (mark.mode === 'Create') await rm(home, { recursive: true, force: true })
      else await withdraw(home, mark)
      this.#known.delete(key)
    })
  }

  /** Order: version directory → mark (from here on a crash leaves what the next write repairs) → the one link → key links → tidy. */
  async #replace(home: string, request: SecretWriteRequest, old: Mark | undefined): Promise<Mark> {
    const version = `..v${this.#random.bytes(8).toString('hex')}`
    await mkdir(join(home, version), { recursive: true, mode: 0o700 })
    const salt = old?.salt ?? this.#random.bytes(16).toString('hex')
    const keys: Record<string, string> = {}
    for (const [name, value] of request.data) {
      await writeFile(join(home, version, name), value.reveal(), { mode: 0o600 })
      keys[name] = digest(salt, value.reveal())
    }
    const mark: Mark = {
      uid: old?.uid ?? this.#random.uuid(),
      mode: request.mode,
      labels: request.labels,
      annotations: request.annotations,
      keys,
      salt,
    }
    const oldVersion = await readlink(join(home, DATA)).catch(() => undefined)
    await replaceFile(join(home, MARK), JSON.stringify({ ...mark, keys: { ...old?.keys, ...keys } }))
    await link(version, join(home, DATA))
    for (const name of Object.keys(keys)) await link(`${DATA}/${name}`, join(home, name))
    for (const name of Object.keys(old?.keys ?? {}))
      if (!Object.hasOwn(keys, name)) await rm(join(home, name), { force: true })
    await replaceFile(join(home, MARK), JSON.stringify(mark))
    for (const name of (await entries(home)) ?? [])
      if (/^\.\.v[0-9a-f]{16}$/.test(name) && name !== version)
        await rm(join(home, name), { recursive: true, force: true })
    if (oldVersion && !/^\.\.v[0-9a-f]{16}$/.test(oldVersion)) await rm(join(home, oldVersion), { force: true })
    return mark
  }

  async #look(ref: NamespacedName): Promise<OutputSecretMeta | undefined> {
    const home = this.#home(ref)
    const mark = await readMark(home)
    if (!mark) return undefined
    const managedKeys: string[] = []
    for (const [name, wanted] of Object.entries(mark.keys)) {
      const text = await readFile(join(home, name), 'utf8').catch(() => undefined)
      if (text !== undefined && digest(mark.salt, text) === wanted) managedKeys.push(name)
    }
    return { uid: mark.uid, labels: mark.labels, annotations: mark.annotations, managedKeys: managedKeys.sort() }
  }

  #home({ namespace, name }: NamespacedName): string {
    return join(this.#folder, namespace, name)
  }
}

async function withdraw(home: string, mark: Mark): Promise<void> {
  for (const name of Object.keys(mark.keys)) await rm(join(home, name), { force: true })
  for (const name of (await entries(home)) ?? [])
    if (name === DATA || name === MARK || /^\.\.v[0-9a-f]{16}$/.test(name))
      await rm(join(home, name), { recursive: true, force: true })
}

async function readMark(home: string): Promise<Mark | undefined> {
  const text = await readFile(join(home, MARK), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined
    throw error
  })
  // Written by us alone, and replaced as a whole.
  return text === undefined ? undefined : (JSON.parse(text) as Mark)
}

/** Makes or replaces a link in one step. */
async function link(target: string, path: string): Promise<void> {
  if ((await readlink(path).catch(() => undefined)) === target) return
  const temporary = `${path}..new`
  await rm(temporary, { force: true })
  await symlink(target, temporary)
  await rename(temporary, path)
}

async function folders(folder: string): Promise<string[]> {
  const found = await readdir(folder, { withFileTypes: true }).catch(() => [])
  return found.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map((entry) => entry.name)
}

/** Names in a directory; undefined when there is nothing of that name. */
async function entries(home: string): Promise<string[] | undefined> {
  const there = await lstat(home).catch(() => undefined)
  if (!there) return undefined
  return there.isDirectory() ? readdir(home) : ['']
}

function digest(salt: string, text: string): string {
  return createHash('sha256').update(salt).update(text).digest('hex')
}

function sameKeys(one: readonly string[] | undefined, other: readonly string[] | undefined): boolean {
  return one?.join(' ') === other?.join(' ')
}
