import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { inClusterEndpoint, type KubeEndpoint } from '../../src/controller/runtime/endpoint.ts'
import { KubeClient } from '../../src/controller/runtime/kube-client.ts'
import { KubeError } from '../../src/controller/runtime/kube-error.ts'
import { allNamespaces, CONFIG_MAPS, SECRETS } from '../../src/controller/runtime/kube-object.ts'
import { kubeconfigEndpoint } from '../../src/controller/runtime/kubeconfig.ts'
import { type Clock, systemClock } from '../../src/lib/clock.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { until } from '../support/cluster.ts'
import { freePort } from '../support/ports.ts'
import { failure, fastClock, reply, type ScriptedKube, scriptedKube } from '../support/scripted-kube.ts'
import { TestClock } from '../support/test-clock.ts'

const ref = { namespace: 'ns', name: 'a' }
const one = { metadata: { name: 'a', namespace: 'ns', uid: 'u', resourceVersion: '1' } }
const clients: KubeClient[] = []

function clientOf(endpoint: KubeEndpoint, clock: Clock = patientClock(), mayWrite = () => true): KubeClient {
  const client = new KubeClient(endpoint, { clock, random: systemRandom, mayWrite })
  clients.push(client)
  return client
}

/** Waits pass fast; limits, which are 10 s or more, are as long as they say: a pause of this process must not end a call. */
function patientClock(): ReturnType<typeof fastClock> {
  const fast = fastClock(100)
  return { ...fast, sleep: (ms, signal) => (ms < 10_000 ? fast : systemClock).sleep(ms, signal) }
}

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client[Symbol.asyncDispose]()))
})

describe('calls', () => {
  let server: ScriptedKube
  let endpoint: KubeEndpoint

  beforeEach(async () => {
    server = await scriptedKube()
    endpoint = { server: server.url, namespace: undefined, load: async () => ({}) }
    server.handle = (_, response) => reply(response, 200, one)
  })
  afterEach(() => server[Symbol.asyncDispose]())

  const failFirst = (...faults: ((response: Parameters<ScriptedKube['handle']>[1]) => void)[]) => {
    server.handle = (_, response) => {
      const fault = faults.shift()
      if (fault) fault(response)
      else reply(response, 200, one)
    }
  }

  test('share connections', async () => {
    const client = clientOf(endpoint)
    for (let i = 0; i < 50; i++) await client.get(CONFIG_MAPS, ref)
    // Two: an answer can be read a moment before its connection counts as free.
    expect(server.connections()).toBeLessThanOrEqual(2)
    await Promise.all(Array.from({ length: 100 }, () => client.get(CONFIG_MAPS, ref)))
    expect(server.connections()).toBeLessThanOrEqual(8)
  })

  test('for the Lease go past the others', async () => {
    const held: (() => void)[] = []
    server.handle = (request, response) => {
      const answer = () => reply(response, 200, one)
      if (request.path.endsWith('/lease')) answer()
      else held.push(answer)
    }
    const client = clientOf(endpoint, fastClock(1))
    const slow = Array.from({ length: 30 }, () => client.get(CONFIG_MAPS, ref))
    await until(5, 'all connections to be busy', () => held.length === 8)
    expect(await client.get(CONFIG_MAPS, { namespace: 'ns', name: 'lease' }, { urgent: true })).toMatchObject(one)
    server.handle = (_, response) => reply(response, 200, one)
    for (const answer of held) answer()
    await Promise.all(slow)
  })

  test('wait as long as a 429 asks, whatever the method', async () => {
    const clock = patientClock()
    const client = clientOf(endpoint, clock)
    failFirst((r) => failure(r, 429, 'TooManyRequests', { 'retry-after': '3' }))
    await client.create(CONFIG_MAPS, 'ns', { metadata: { name: 'a' } })
    expect(server.requests).toHaveLength(2)
    expect(clock.slept.some((ms) => ms >= 3_000 && ms < 10_000)).toBe(true)
  })

  test.each([
    { what: 'a read', call: (c: KubeClient) => c.get(CONFIG_MAPS, ref), times: 2 },
    {
      what: 'an apply with a uid',
      call: (c: KubeClient) => c.apply(CONFIG_MAPS, ref, { metadata: { name: 'a', uid: 'u' } }, { manager: 'm' }),
      times: 2,
    },
    {
      what: 'a patch with a test',
      call: (c: KubeClient) => c.jsonPatch(CONFIG_MAPS, ref, [{ op: 'test', path: '/metadata/uid', value: 'u' }]),
      times: 2,
    },
    { what: 'a creation', call: (c: KubeClient) => c.create(CONFIG_MAPS, 'ns', one), times: 1 },
    {
      what: 'a creating apply',
      call: (c: KubeClient) => c.apply(CONFIG_MAPS, ref, one.metadata, { manager: 'm' }),
      times: 1,
    },
    { what: 'a replacement', call: (c: KubeClient) => c.replace(CONFIG_MAPS, ref, one), times: 1 },
  ])('$what is sent $times time(s) when the server breaks off', async ({ call, times }) => {
    for (const fault of [
      (r: Parameters<ScriptedKube['handle']>[1]) => failure(r, 503, 'ServiceUnavailable'),
      (r: Parameters<ScriptedKube['handle']>[1]) => r.socket?.resetAndDestroy(),
    ]) {
      server.requests.length = 0
      failFirst(fault)
      const outcome = await call(clientOf(endpoint)).then(
        () => 'answered',
        (error: unknown) => (error instanceof KubeError ? error.kind : error),
      )
      expect(outcome).toBe(times === 2 ? 'answered' : 'unavailable')
      expect(server.requests).toHaveLength(times)
    }
  })

  test('that conflict come back to the caller at once', async () => {
    failFirst((r) => failure(r, 409, 'Conflict'))
    const apply = clientOf(endpoint).apply(CONFIG_MAPS, ref, { metadata: { name: 'a', uid: 'u' } }, { manager: 'm' })
    await expect(apply).rejects.toMatchObject({ status: 409, statusReason: 'Conflict', kind: 'unavailable' })
    expect(server.requests).toHaveLength(1)
  })

  test('are not multiplied on a server in trouble', async () => {
    server.handle = (_, response) => failure(response, 500, 'InternalError')
    const client = clientOf(endpoint)
    for (let i = 0; i < 100; i++) await client.get(CONFIG_MAPS, ref).catch(() => undefined)
    expect(server.requests.length).toBeLessThan(125)
  })

  test('end after their time limit, and are repeated only within reason', async () => {
    server.handle = () => undefined
    const clock = new TestClock()
    const outcome = clientOf(endpoint, clock)
      .create(CONFIG_MAPS, 'ns', one)
      .catch((error: unknown) => error)
    await until(20, 'the request', () => server.requests.length === 1)
    await clock.advance(9_900)
    expect(await Promise.race([outcome, 'waiting'])).toBe('waiting')
    await clock.advance(100)
    expect(await outcome).toMatchObject({ kind: 'unavailable', status: 0 })
    expect(server.requests).toHaveLength(1)
  })

  test('that write are not sent once that is not allowed any more, however long they have waited', async () => {
    const held: (() => void)[] = []
    server.handle = (_, response) => held.push(() => reply(response, 200, one))
    let may = true
    const client = clientOf(endpoint, fastClock(1), () => may)
    const apply = () => client.apply(CONFIG_MAPS, ref, { metadata: { name: 'a', uid: 'u' } }, { manager: 'm' })
    const writes = Promise.allSettled(Array.from({ length: 30 }, apply))
    await until(5, 'all connections to be busy', () => held.length === 8)
    may = false
    server.handle = (_, response) => reply(response, 200, one)
    for (const answer of held) answer()
    const refused = (await writes).filter(({ status }) => status === 'rejected')
    expect(refused).toHaveLength(22)
    expect(server.requests).toHaveLength(8)
    for (const call of [apply(), client.delete(CONFIG_MAPS, ref, { uid: 'u' })])
      await expect(call).rejects.toMatchObject({ kind: 'unavailable', reason: 'not-leading' })
    // Reads go on, and so do the calls by which the lead is won back.
    expect(await client.get(CONFIG_MAPS, ref)).toMatchObject(one)
    await client.replace(CONFIG_MAPS, ref, one, { urgent: true })
    expect(server.requests.slice(8).map(({ method }) => method)).toEqual(['GET', 'PUT'])
  })

  test('that write are not repeated once that is not allowed any more', async () => {
    let may = true
    server.handle = (_, response) => {
      may = false
      failure(response, 429, 'TooManyRequests')
    }
    const call = clientOf(endpoint, patientClock(), () => may).create(CONFIG_MAPS, 'ns', one)
    await expect(call).rejects.toMatchObject({ reason: 'not-leading' })
    expect(server.requests).toHaveLength(1)
  })

  test('end when their caller gives up', async () => {
    server.handle = () => undefined
    const gaveUp = new AbortController()
    const answer = clientOf(endpoint, fastClock(1)).get(CONFIG_MAPS, ref, { signal: gaveUp.signal })
    await until(5, 'the request', () => server.requests.length === 1)
    gaveUp.abort()
    await expect(answer).rejects.toThrow(KubeError)
  })

  test('ask for metadata alone where values must not travel', async () => {
    const client = clientOf(endpoint)
    await client.get(SECRETS, ref, { metadataOnly: true })
    await client.apply(SECRETS, ref, one, { manager: 'm', force: true, metadataOnly: true })
    expect(server.requests.map((r) => r.headers['accept'])).toEqual(
      Array(2).fill('application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1'),
    )
    expect(server.requests[1]?.query.toString()).toBe('fieldManager=m&force=true')
    expect(JSON.parse(server.requests[1]?.body ?? '')).toEqual({ apiVersion: 'v1', kind: 'Secret', ...one })
  })

  test('never read all namespaces by mistake', async () => {
    const client = clientOf(endpoint)
    server.handle = (_, response) => reply(response, 200, { metadata: { resourceVersion: '1' }, items: [] })
    await expect(client.list(SECRETS, '')).rejects.toThrow('namespace')
    await expect(client.get(SECRETS, { name: 'a' })).rejects.toThrow('namespace')
    expect(server.requests).toHaveLength(0)
    await client.list(SECRETS, allNamespaces)
    expect(server.requests[0]?.path).toBe('/api/v1/secrets')
  })

  test('spell names as data, not as paths', async () => {
    await clientOf(endpoint).get(CONFIG_MAPS, { namespace: '../kube-system', name: 'a?b=c' })
    expect(server.requests[0]?.path).toBe('/api/v1/namespaces/..%2Fkube-system/configmaps/a%3Fb%3Dc')
  })

  test('say what the server said, and a delete of something gone is no error', async () => {
    server.handle = (_, response) =>
      reply(response, 403, {
        code: 403,
        reason: 'Forbidden',
        message: 'no',
        details: { causes: [{ reason: 'NamespaceTerminating' }] },
      })
    const create = clientOf(endpoint).create(SECRETS, 'ns', one)
    await expect(create).rejects.toMatchObject({
      kind: 'unavailable',
      causes: ['NamespaceTerminating'],
      statusReason: 'Forbidden',
    })
    server.handle = (_, response) => failure(response, 404, 'NotFound')
    expect(await clientOf(endpoint).delete(SECRETS, ref, { uid: 'u' })).toBe(false)
    server.handle = (_, response) => failure(response, 409, 'Conflict')
    expect(await clientOf(endpoint).delete(SECRETS, ref, { uid: 'u' })).toBe(false)
    expect(JSON.parse(server.requests.at(-1)?.body ?? '')).toMatchObject({ preconditions: { uid: 'u' } })
  })
})

describe('in a pod', () => {
  let dir: string
  let server: ScriptedKube
  let accepted: string

  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'kt-pod-'))
    accepted = 'first'
    server = await serve(newCertificate('one'), await freePort())
    writeFileSync(join(dir, 'token'), 'first\n')
    writeFileSync(join(dir, 'namespace'), 'keyturn-system')
  })
  afterEach(async () => {
    await server[Symbol.asyncDispose]()
    rmSync(dir, { recursive: true })
  })

  function newCertificate(name: string): { key: string; cert: string } {
    const [key, cert] = [join(dir, `${name}.key`), join(dir, `${name}.crt`)]
    const subject = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '1']
    const how = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
    execFileSync('openssl', [...how, '-keyout', key, '-out', cert, ...subject], { stdio: 'ignore' })
    const files = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') }
    writeFileSync(join(dir, 'ca.crt'), files.cert)
    return files
  }
  async function serve(tls: { key: string; cert: string }, port: number): Promise<ScriptedKube> {
    const scripted = await scriptedKube({ tls, port })
    scripted.handle = (request, response) =>
      request.headers['authorization'] === `Bearer ${accepted}`
        ? reply(response, 200, one)
        : failure(response, 401, 'Unauthorized')
    return scripted
  }
  const endpoint = () => inClusterEndpoint({ host: '127.0.0.1', port: String(server.port), dir })

  test('the two files are read, and a new token is taken up when the old one is refused', async () => {
    const pod = await endpoint()
    expect(pod.namespace).toBe('keyturn-system')
    // The clock stands still: only the 401 can make it read the file again.
    const client = clientOf(pod, { ...fastClock(1), monotonicMs: () => 0 })
    await client.get(CONFIG_MAPS, ref)
    accepted = 'second'
    writeFileSync(join(dir, 'token'), 'second')
    await client.get(CONFIG_MAPS, ref)
    expect(server.requests.map((r) => r.headers['authorization'])).toEqual([
      'Bearer first',
      'Bearer first',
      'Bearer second',
    ])
    accepted = 'third'
    await expect(client.get(CONFIG_MAPS, ref)).rejects.toMatchObject({ status: 401, kind: 'unavailable' })
  })

  test('a new token is taken up before the old one is refused', async () => {
    let nowMs = 0
    const client = clientOf(await endpoint(), { ...fastClock(1), monotonicMs: () => nowMs })
    await client.get(CONFIG_MAPS, ref)
    accepted = 'second'
    writeFileSync(join(dir, 'token'), 'second')
    nowMs = 11_000
    await client.get(CONFIG_MAPS, ref)
    expect(server.requests.map((r) => r.headers['authorization'])).toEqual(['Bearer first', 'Bearer second'])
  })

  test('a new certificate authority is taken up, and one that is not ours is refused', async () => {
    let nowMs = 0
    const client = clientOf(await endpoint(), { ...patientClock(), monotonicMs: () => nowMs })
    await client.get(CONFIG_MAPS, ref)
    const ours = readFileSync(join(dir, 'ca.crt'))
    await server[Symbol.asyncDispose]()
    const { port } = server
    server = await serve(newCertificate('two'), port)
    const theirs = readFileSync(join(dir, 'ca.crt'))
    writeFileSync(join(dir, 'ca.crt'), ours)
    nowMs = 11_000
    await expect(client.get(CONFIG_MAPS, ref)).rejects.toMatchObject({ kind: 'unavailable', status: 0 })
    expect(server.requests).toHaveLength(0)
    writeFileSync(join(dir, 'ca.crt'), theirs)
    nowMs = 22_000
    await client.get(CONFIG_MAPS, ref)
  })

  test('outside of one, a kubeconfig gives the same', async () => {
    const path = join(dir, 'kubeconfig')
    const config = {
      'current-context': 'c',
      clusters: [{ name: 'c', cluster: { server: server.url, 'certificate-authority': join(dir, 'ca.crt') } }],
      users: [{ name: 'u', user: { token: 'first' } }],
      contexts: [{ name: 'c', context: { cluster: 'c', user: 'u', namespace: 'mine' } }],
    }
    writeFileSync(path, JSON.stringify(config))
    const outside = await kubeconfigEndpoint(path)
    expect(outside).toMatchObject({ server: server.url, namespace: 'mine' })
    expect(await clientOf(outside).get(CONFIG_MAPS, ref)).toMatchObject(one)
    await expect(kubeconfigEndpoint(join(dir, 'absent'))).rejects.toMatchObject({ kind: 'invalid' })
  })
})
