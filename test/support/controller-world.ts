import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, vi } from 'vitest'
import { type Client, createClient } from '../../src/client/client.ts'
import { inProcessTransport } from '../../src/client/in-process.ts'
import { startController } from '../../src/controller/controller.ts'
import { openStandalone } from '../../src/controller/source/directory-source.ts'
import type { EventNote, Resource, ResourceRef, Sink, Source } from '../../src/controller/source/source.ts'
import { type Engine, startEngine } from '../../src/engine/engine.ts'
import type { Store } from '../../src/engine/storage/store.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import type { Secret } from '../../src/lib/secret.ts'
import { openEngineStore } from './engine-store.ts'
import type { Slapd } from './slapd.ts'

/** The controller over a directory of manifests and the real engine, all in this process. */

export const SAMPLES = path.resolve(import.meta.dirname, '../../config/samples')
export const APP: ResourceRef = { kind: 'LdapStaticRole', namespace: 'demo', name: 'app' }
export const CORP: ResourceRef = { kind: 'LdapEngine', name: 'corp' }
export const PEOPLE: ResourceRef = { kind: 'LdapAuth', name: 'people' }
/** The account of `APP`. */
export const APP_DN = 'uid=static-1,ou=services,dc=example,dc=test'

type Edit = (text: string) => string

export interface ControllerWorld extends AsyncDisposable {
  readonly home: string
  readonly engine: Engine
  readonly store: Store
  readonly source: Source
  readonly root: Client
  /** The client of the controller. */
  readonly client: Client
  /** What the cluster refuses: the calls of the sink that throw, and what. */
  readonly faults: Map<keyof Sink, unknown>
  /** How often that call was refused so far. */
  refusals(call: keyof Sink): number
  /** The events about an object, oldest first. */
  eventsOf(ref: ResourceRef): readonly EventNote[]
  /** Lets the controller run again after `end`. */
  start(): Promise<void>
  end(): Promise<void>
  put(file: string, text: string): Promise<void>
  putSamples(edit?: Edit): Promise<void>
  sample(file: string): Promise<string>
  edit(file: string, change: Edit): Promise<void>
  /** Puts an annotation on the object of a file that has none. */
  annotate(file: string, annotations: string): Promise<void>
  // biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary statuses
  status(ref: ResourceRef): any
  /** `True Ready` and the like. */
  condition(ref: ResourceRef, type?: string): string | undefined
  messageOf(ref: ResourceRef, type: string): string
  ready(ref: ResourceRef): Promise<void>
  secret(key: string, name?: string): Promise<string>
}

export const eventually = <T>(check: () => T | Promise<T>, timeout = 15_000): Promise<T> =>
  vi.waitFor(check, { timeout, interval: 20 })

export async function startControllerWorld(slapd: Slapd): Promise<ControllerWorld> {
  const home = await mkdtemp(path.join(tmpdir(), 'kt-ctl-'))
  await mkdir(path.join(home, 'm'))
  const { store, barrier } = await openEngineStore(systemClock)
  const deps = {
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: process.env['KEYTURN_LOG_LEVEL'] ?? 'silent' }),
  }
  let rootToken: Secret | undefined
  const engine = await startEngine({
    ...deps,
    store,
    barrier,
    isExclusive: true,
    audit: undefined,
    version: '0.0.0',
    snapshotDir: undefined,
    keepRootToken: async (token) => {
      rootToken = token
    },
  })
  const transport = inProcessTransport({ engine, random: systemRandom })
  const client = createClient({ transport, ...deps, token: async () => engine.controllerToken })
  const root = createClient({ transport, ...deps, token: async () => rootToken })
  const faults = new Map<keyof Sink, unknown>()
  const refused: (keyof Sink)[] = []
  const events: { readonly resource: Resource; readonly note: EventNote }[] = []
  let stop = new AbortController()
  let running: Promise<void> = Promise.resolve()
  let source: Source

  const file = (name: string) => path.join(home, 'm', name)
  const world: ControllerWorld = {
    home,
    engine,
    store,
    root,
    client,
    faults,
    refusals: (call) => refused.filter((one) => one === call).length,
    get source() {
      return source
    },
    eventsOf: ({ kind, name, namespace }) =>
      events.flatMap(({ resource: { kind: of, metadata }, note }) =>
        of === kind && metadata.name === name && metadata.namespace === namespace ? [note] : [],
      ),
    async start() {
      stop = new AbortController()
      const manifests = path.join(home, 'm')
      const pair = await openStandalone({ ...deps, manifests, secrets: path.join(home, 's') })
      source = pair.source
      const sink = faulty(pair.sink, faults, refused, (resource, note) => events.push({ resource, note }))
      running = startController({ ...deps, source, sink, client, signal: stop.signal })
    },
    async end() {
      stop.abort()
      await running.catch(() => undefined)
    },
    put: (name, text) =>
      writeFile(
        file(name),
        text.replaceAll('ldap://127.0.0.1:3890', slapd.url).replace('rotationPeriod: 15s', 'rotationPeriod: 1h'),
      ),
    sample: (name) => readFile(path.join(SAMPLES, name), 'utf8'),
    async putSamples(edit = (text) => text) {
      for (const name of await readdir(SAMPLES)) await world.put(name, edit(await world.sample(name)))
    },
    async edit(name, change) {
      const text = await readFile(file(name), 'utf8')
      const changed = change(text)
      expect(changed).not.toBe(text)
      await writeFile(file(name), changed)
    },
    annotate: (name, annotations) =>
      world.edit(name, (text) => text.replace(/^metadata:\n/m, `metadata:\n  annotations: {${annotations}}\n`)),
    status: (ref) => source.get(ref)?.status,
    condition(ref, type = 'Ready') {
      const found = conditionsOf(source.get(ref)?.status).find((one) => one.type === type)
      return found && `${found.status} ${found.reason}`
    },
    messageOf: (ref, type) => conditionsOf(source.get(ref)?.status).find((one) => one.type === type)?.message ?? '',
    ready: (ref) => eventually(() => expect(world.condition(ref)).toBe('True Ready')),
    secret: (key, name = 'app-login') => readFile(path.join(home, 's/demo', name, key), 'utf8'),
    async [Symbol.asyncDispose]() {
      await world.end()
      await engine[Symbol.asyncDispose]()
      await rm(home, { recursive: true, force: true })
    },
  }
  await world.start()
  return world
}

/** The sink of a cluster that refuses some calls, and a note of every event. */
function faulty(
  sink: Sink,
  faults: ReadonlyMap<keyof Sink, unknown>,
  refused: (keyof Sink)[],
  told: (resource: Resource, note: EventNote) => void,
): Sink {
  const refuses = (call: keyof Sink) => {
    if (!faults.has(call)) return
    refused.push(call)
    throw faults.get(call)
  }
  return {
    async applySecret(request) {
      refuses('applySecret')
      return sink.applySecret(request)
    },
    async deleteSecret(...call) {
      refuses('deleteSecret')
      await sink.deleteSecret(...call)
    },
    async writeStatus(resource, status) {
      refuses('writeStatus')
      await sink.writeStatus(resource, status)
    },
    async addFinalizer(resource, name) {
      refuses('addFinalizer')
      await sink.addFinalizer(resource, name)
    },
    async removeFinalizer(resource, name) {
      refuses('removeFinalizer')
      await sink.removeFinalizer(resource, name)
    },
    event(resource, note) {
      told(resource, note)
      sink.event(resource, note)
    },
  }
}

interface Told {
  readonly type: string
  readonly status: string
  readonly reason: string
  readonly message: string
}

function conditionsOf(status: unknown): readonly Told[] {
  return (status as { conditions?: readonly Told[] } | undefined)?.conditions ?? []
}
