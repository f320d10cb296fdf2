import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../lib/clock.ts'
import { invalid, messageOf } from '../../lib/errors.ts'
import type { Logger } from '../../lib/log.ts'
import type { Random } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'
import { createFileSink } from './file-sink.ts'
import { FolderLook } from './folder-look.ts'
import { ManifestSet } from './manifest-set.ts'
import { ObjectStore, refOf } from './object-store.ts'
import { SecretDirectory } from './secret-directory.ts'
import type { NamespacedName, ResourceRef, Sink, Source } from './source.ts'

/*
 * The embedded pair of Source and Sink: a directory of manifests, and files as Secrets. No cluster needed. Changes are noticed by the
 * file system's own notices, gathered for a moment, and by a slow look that misses nothing.
 * `manifest-set.ts` decides what changed.
 */

const LOOK_MS = 10_000
const RESYNC_MS = 36_000_000
/** A document must be missing this long before its object is deleted: editors write files in several steps. */
const MISSING_MS = 750

export interface StandaloneOptions {
  readonly manifests: string
  readonly secrets: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

/** Opens the pair. Throws `invalid` when there are no manifests to read, and when a directory cannot be made. */
export async function openStandalone(options: StandaloneOptions): Promise<{ source: Source; sink: Sink }> {
  const { manifests, secrets: folder, clock, random, log } = options
  await requireReadable(manifests)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const objects = new ObjectStore(join(folder, '.keyturn'), log)
  await objects.load()
  const secrets = new SecretDirectory(folder, random)
  await secrets.scan()
  const set = new ManifestSet({ directory: manifests, objects, clock, log, missingMs: MISSING_MS })
  let onChange: (ref: ResourceRef, why: 'user' | 'resync') => void = () => undefined
  // Neither waits for the other: there may be thousands of Secrets, and each that we write is a reason to look.
  const given = new FolderLook({
    folder: manifests,
    look: lookAtManifests,
    waitMs: () => set.lookAgainInMs() ?? LOOK_MS,
    clock,
    log,
  })
  const made = new FolderLook({ folder, look: lookAtSecrets, waitMs: () => LOOK_MS, clock, log })

  const sink = createFileSink({
    objects,
    secrets,
    log,
    clock,
    onGone: (ref) => {
      onChange(ref, 'user')
      // Its manifest may be back already.
      given.wake()
    },
  })

  const source: Source = {
    async start(kinds, report, signal) {
      onChange = (ref, why) => {
        if (kinds.includes(ref.kind) || ['Secret', 'ConfigMap', 'Namespace'].includes(ref.kind)) report(ref, why)
      }
      await set.look()
      for (const object of objects.all()) onChange(refOf(object), 'user')
      // All end with the signal, and report what fails in them.
      void given.run(signal)
      void made.run(signal)
      void resync(signal)
    },
    get: (ref) => objects.get(ref),
    list: (kind, namespace) =>
      objects
        .all()
        .filter(
          (object) => object.kind === kind && (namespace === undefined || object.metadata.namespace === namespace),
        ),
    namespaceLabels: async (name) => ({ 'kubernetes.io/metadata.name': name, ...set.namespaceLabels(name) }),
    namespaceTerminating: async () => false,
    readSecretKey: async ({ namespace, name, key }) => {
      const value = (await entriesOf({ namespace, name }))?.get(key)
      return value === undefined ? undefined : new Secret(value)
    },
    readSecret: async ({ namespace, name }) => {
      const entries = await entriesOf({ namespace, name })
      return entries && new Map([...entries].map(([key, value]) => [key, new Secret(value)]))
    },
    readConfigMapKey: async ({ namespace, name, key }) => set.entries('ConfigMap', namespace, name)?.get(key),
    outputSecret: (ref) => secrets.get(ref),
  }

  /** A Secret of the manifests, else one of the directory of Secrets. */
  async function entriesOf(ref: NamespacedName): Promise<ReadonlyMap<string, string> | undefined> {
    return set.entries('Secret', ref.namespace, ref.name) ?? (await secrets.read(ref))
  }

  async function lookAtManifests(): Promise<boolean> {
    try {
      return reported(await set.look())
    } catch (error) {
      log.error({ error: messageOf(error) }, 'manifests cannot be read; what was read last stays in force')
      return false
    }
  }

  async function lookAtSecrets(): Promise<boolean> {
    try {
      return reported((await secrets.scan()).map((ref) => ({ kind: 'Secret', ...ref })))
    } catch (error) {
      log.error({ error: messageOf(error) }, 'the directory of Secrets cannot be read')
      return false
    }
  }

  function reported(changed: readonly ResourceRef[]): boolean {
    for (const ref of changed) onChange(ref, 'user')
    return changed.length > 0
  }

  async function resync(signal: AbortSignal): Promise<void> {
    for (;;) {
      await clock.sleep(RESYNC_MS, signal).catch(() => undefined)
      if (signal.aborted) return
      for (const object of objects.all()) onChange(refOf(object), 'resync')
    }
  }

  return { source, sink }
}

async function requireReadable(manifests: string): Promise<void> {
  try {
    await readdir(manifests)
  } catch (cause) {
    throw invalid(`the directory of manifests cannot be read: ${messageOf(cause)}`, { cause })
  }
}
