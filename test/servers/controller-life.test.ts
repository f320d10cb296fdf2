import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Client, createClient } from '../../src/client/client.ts'
import { httpTransport } from '../../src/client/http.ts'
import { controllerConfig } from '../../src/config.ts'
import { startController } from '../../src/controller/controller.ts'
import { openStandalone } from '../../src/controller/source/directory-source.ts'
import type { Source } from '../../src/controller/source/source.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { unavailable } from '../../src/lib/errors.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { startControllerProcess } from '../../src/processes/controller.ts'
import { until } from '../support/cluster.ts'
import { reply, type ScriptedKube, scriptedKube } from '../support/scripted-kube.ts'

/** How the controller begins and ends, also while the engine, or what keeps its own key, does not answer. */

const deps = { clock: systemClock, random: systemRandom, log: createLogger({ level: 'silent' }) }
const POLICY = `
apiVersion: keyturn.dev/v1alpha1
kind: AccessPolicy
metadata: {name: readers}
spec: {rules: [{path: a, capabilities: [read]}]}
`

let home: string
/** Speaks for the engine. */
let engine: ScriptedKube
let client: Client
let stop: AbortController

beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'kt-stop-'))
  await mkdir(path.join(home, 'm'))
  await writeFile(path.join(home, 'm/policy.yaml'), POLICY)
  engine = await scriptedKube()
  client = createClient({ ...deps, transport: httpTransport({ address: engine.url }) })
  stop = new AbortController()
})
afterEach(async () => {
  stop.abort()
  await engine[Symbol.asyncDispose]()
  await client[Symbol.asyncDispose]()
  await rm(home, { recursive: true, force: true })
})

// In an object: a promise returned from an async function would be waited for.
async function start(
  change: (source: Source) => Partial<Source> = () => ({}),
  controllers?: readonly string[],
): Promise<{ running: Promise<void> }> {
  const { source, sink } = await openStandalone({
    ...deps,
    manifests: path.join(home, 'm'),
    secrets: path.join(home, 's'),
  })
  const running = startController({
    ...deps,
    source: { ...source, ...change(source) },
    sink,
    client,
    signal: stop.signal,
    graceMs: 200,
    ...(controllers && { controllers }),
  })
  return { running }
}
/** Where its event feed has got to is told; what is asked besides is not answered. */
const hangs: ScriptedKube['handle'] = (request, response) => {
  if (request.path === '/v1/sys/events' && !request.query.has('wait'))
    reply(response, 200, { request_id: 'r', data: { last: 0, events: [] } })
}
const asked = (what: string) =>
  until(10, `a request for ${what}`, () => engine.requests.some(({ path }) => path.endsWith(what)))

test('a stop breaks off the calls that the engine does not answer', async () => {
  let isOver = false
  engine.handle = (request, response) => {
    hangs(request, response)
    if (request.path.endsWith('/acl/readers')) response.on('close', () => (isOver = true))
  }
  const { running } = await start()
  await asked('/acl/readers')
  const from = performance.now()
  stop.abort()
  await running
  expect(performance.now() - from).toBeGreaterThanOrEqual(190)
  expect(performance.now() - from).toBeLessThan(5_000)
  await until(20, 'the end of the call', () => isOver)
})

test('a stop before the engine has ever answered is a normal end', async () => {
  engine.handle = (_, response) => reply(response, 503, { errors: ['away'] })
  const { running } = await start()
  await until(10, 'a second try', () => engine.requests.length > 1)
  stop.abort()
  await running
})

test('a stop does not wait for the key that cannot be read', async () => {
  engine.handle = hangs
  let reads = 0
  const { running } = await start(() => ({
    readSecretKey: () => {
      reads += 1
      return new Promise(() => undefined)
    },
  }))
  await until(10, 'the read', () => reads === 1)
  stop.abort()
  await running
})

test('a key that cannot be read at first is read later', async () => {
  engine.handle = hangs
  let reads = 0
  const { running } = await start((source) => ({
    async readSecretKey(ref) {
      reads += 1
      if (reads <= 2) throw unavailable('the API server is away')
      return source.readSecretKey(ref)
    },
  }))
  await asked('/acl/readers')
  stop.abort()
  await running
})

test('only the kinds that it is told to work on are worked on', async () => {
  engine.handle = hangs
  const spec = { urls: ['ldap://127.0.0.1:1'] }
  const auth = { apiVersion: 'keyturn.dev/v1alpha1', kind: 'LdapAuth', metadata: { name: 'people' }, spec }
  await writeFile(path.join(home, 'm/auth.yaml'), JSON.stringify(auth))
  let known: Source | undefined
  const { running } = await start(
    (source) => {
      known = source
      return {}
    },
    ['LdapAuth'],
  )
  await asked('/v1/sys/auth')
  expect(engine.requests.filter(({ path }) => path.endsWith('/acl/readers'))).toEqual([])
  expect(known?.get({ kind: 'AccessPolicy', name: 'readers' })).toBeDefined()
  stop.abort()
  await running
})

test('a kind that there is not is refused before anything begins', async () => {
  const args = ['--controllers', 'LdapAuth,LdapOath', '--manifests', path.join(home, 'm'), '--secrets', home]
  const { log } = deps
  await expect(
    startControllerProcess({ config: controllerConfig(args, {}), log, signal: stop.signal }),
  ).rejects.toMatchObject({ kind: 'invalid', message: expect.stringContaining('LdapOath') })
})
