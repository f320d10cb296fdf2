import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { KubeClient } from '../../src/controller/runtime/kube-client.ts'
import { ClusterSource } from '../../src/controller/source/cluster.ts'
import { OwnWrites } from '../../src/controller/source/own-writes.ts'
import type { ResourceRef } from '../../src/controller/source/source.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { until } from '../support/cluster.ts'
import { failure, type ScriptedKube, scriptedKube } from '../support/scripted-kube.ts'
import { TestClock } from '../support/test-clock.ts'

/** The source over an API server that keeps something back. */

const CENTRAL_SECRETS = '/api/v1/namespaces/central/secrets'

let server: ScriptedKube
let clock: TestClock
let client: KubeClient
let source: ClusterSource
let stop: AbortController
let running: Promise<void>
/** Every watch under way, by path. */
let watches: Map<string, ServerResponse[]>
let heard: string[]

beforeEach(async () => {
  server = await scriptedKube()
  clock = new TestClock()
  stop = new AbortController()
  watches = new Map()
  heard = []
  server.handle = ({ path }, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders()
    watches.set(path, [...(watches.get(path) ?? []), response])
    if (path !== CENTRAL_SECRETS) response.write(stateEnd)
  }
  const deps = { clock, random: systemRandom, log: createLogger({ level: 'silent' }) }
  client = new KubeClient({ server: server.url, namespace: undefined, load: async () => ({}) }, deps)
  source = new ClusterSource(
    {
      types: [{ group: 'example.com', version: 'v1', plural: 'widgets', kind: 'Widget', namespaced: true }],
      centralNamespace: 'central',
      managedLabel: 'example.com/managed',
      secretManager: 'keyturn',
    },
    { ...deps, client, writes: new OwnWrites() },
  )
  running = source.run(stop.signal)
  await source.synced()
})
afterEach(async () => {
  stop.abort()
  await running
  await client[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

const stateEnd = `${JSON.stringify({
  type: 'BOOKMARK',
  object: { metadata: { resourceVersion: '10', annotations: { 'k8s.io/initial-events-end': 'true' } } },
})}\n`
const hear = ({ kind, name }: ResourceRef) => heard.push(`${kind} ${name}`)

test('an input that changes before the central namespace is known is told', async () => {
  await source.start(['Widget'], hear, stop.signal)
  await until(5, 'the watch', () => watches.has(CENTRAL_SECRETS))
  expect(heard).toEqual([])
  const bind = { metadata: { name: 'bind', namespace: 'central', uid: 'u', resourceVersion: '9' } }
  for (const watch of watches.get(CENTRAL_SECRETS) ?? [])
    watch.write(`${JSON.stringify({ type: 'ADDED', object: bind })}\n${stateEnd}`)
  await until(5, 'the input', () => heard.length > 0)
  expect(heard).toEqual(['Secret bind'])
})

test('is ready while it hears the server, and not while every watch is refused', async () => {
  const bookmark = `${JSON.stringify({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '11' } } })}\n`
  for (let minute = 0; minute < 10; minute++) {
    expect(source.isReady()).toBe(true)
    await clock.advance(60_000)
    for (const watch of [...watches.values()].flat()) watch.write(bookmark)
    await until(5, 'the bookmarks', () => source.informers.every(({ silentMs }) => silentMs === 0))
  }
  server.handle = (_, response) => failure(response, 403, 'Forbidden')
  server.dropConnections()
  await until(20, 'it to be out of touch', async () => {
    await clock.advance(5_000)
    return !source.isReady()
  })
  expect(source.informers.map(({ state }) => state)).toEqual(['failing', 'failing', 'failing'])
})
