import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { EventRecorder } from '../../src/controller/runtime/events.ts'
import { addFinalizer, removeFinalizer } from '../../src/controller/runtime/finalizer.ts'
import { Informer } from '../../src/controller/runtime/informer.ts'
import { KubeClient } from '../../src/controller/runtime/kube-client.ts'
import { KubeError } from '../../src/controller/runtime/kube-error.ts'
import {
  CONFIG_MAPS,
  type KubeObject,
  NAMESPACES,
  type ResourceType,
  SECRETS,
} from '../../src/controller/runtime/kube-object.ts'
import { kubeconfigEndpoint } from '../../src/controller/runtime/kubeconfig.ts'
import { LeaderLease } from '../../src/controller/runtime/lease.ts'
import { managedKeysOf, type SecretWriteRequest, SecretWriter } from '../../src/controller/runtime/secret-writer.ts'
import { applyStatus, nextConditions } from '../../src/controller/runtime/status.ts'
import type { Change } from '../../src/controller/runtime/store.ts'
import { clusterPair } from '../../src/controller/source/cluster-sink.ts'
import type { Resource, ResourceRef } from '../../src/controller/source/source.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { newNamespace, until } from '../support/cluster.ts'
import { sharedCluster } from '../support/shared-cluster.ts'

const cluster = sharedCluster()
const group = `runtime-${process.pid}.example.com`
const WIDGETS: ResourceType = { group, version: 'v1', plural: 'widgets', kind: 'Widget', namespaced: true }
const log = createLogger({ level: 'silent' })

const CRD = (plural = 'widgets', kind = 'Widget') => `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ${plural}.${group}}
spec:
  group: ${group}
  scope: Namespaced
  names: {plural: ${plural}, kind: ${kind}, singular: ${kind.toLowerCase()}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec: {type: object, required: [size], properties: {size: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`
/** All that the cluster source and sink need; who adds a rule here adds it to the chart. */
const RIGHTS = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: runtime-${process.pid}}
rules:
- {apiGroups: [${group}], resources: [widgets], verbs: [get, list, watch, patch]}
- {apiGroups: [${group}], resources: [widgets/status], verbs: [patch]}
- {apiGroups: [""], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [configmaps, namespaces], verbs: [get, list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: runtime-${process.pid}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: runtime-${process.pid}}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}]
`
const widget = (namespace: string, name: string, size = 1) => `
apiVersion: ${group}/v1
kind: Widget
metadata: {name: ${name}, namespace: ${namespace}}
spec: {size: ${size}}
`

describe.skipIf(!cluster)('the Kubernetes runtime against a real API server', () => {
  if (!cluster) return
  let client: KubeClient
  let stop: AbortController
  const running: Promise<unknown>[] = []
  const deps = () => ({ client, clock: systemClock, random: systemRandom, log })
  const run = (work: Promise<unknown>) => void running.push(work)

  beforeAll(async () => {
    client = new KubeClient(await kubeconfigEndpoint(cluster.kubeconfig), deps())
    stop = new AbortController()
    await cluster.apply(CRD())
  })
  afterEach(async () => {
    stop.abort()
    await Promise.all(running.splice(0))
    stop = new AbortController()
  })
  afterAll(async () => {
    await client[Symbol.asyncDispose]()
    // Other files count on an operator without rights.
    await cluster.request('DELETE', `/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/runtime-${process.pid}`)
    await cluster.request('DELETE', `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.${group}`)
  })

  test('an informer lists what is there and follows what changes', async () => {
    const namespace = await newNamespace(cluster)
    await cluster.apply(widget(namespace, 'first'))
    const informer = new Informer({ type: WIDGETS, namespace, indexes: { size: sizeOf } }, deps())
    const changes: Change[] = []
    informer.onChange((change) => changes.push(change))
    run(informer.run(stop.signal))
    await informer.synced
    expect([...informer.store.keys()]).toEqual([`${namespace}/first`])
    await cluster.apply(widget(namespace, 'second', 2))
    await cluster.apply(widget(namespace, 'first', 2))
    await cluster.request('DELETE', `/apis/${group}/v1/namespaces/${namespace}/widgets/second`)
    await until(10, 'the deletion', () => changes.some((c) => c.type === 'deleted'))
    expect(changes.map((c) => `${c.type} ${c.key.split('/')[1]}`)).toEqual([
      'added first',
      'added second',
      'updated first',
      'deleted second',
    ])
    expect(informer.store.byIndex('size', '2').map((o) => o.metadata.name)).toEqual(['first'])
    expect(informer.store.get(`${namespace}/first`)?.metadata.managedFields).toBeUndefined()
    // The state came with the watch.
    const asked = cluster.audit().filter(({ requestURI }) => requestURI.includes(`${namespace}/widgets?`))
    expect(asked.map(({ verb }) => verb)).not.toContain('list')
  })

  test('a resource that is not installed is found once it is', { timeout: 30_000 }, async () => {
    const type = { ...WIDGETS, plural: 'gadgets', kind: 'Gadget' }
    const namespace = await newNamespace(cluster)
    // The minute until the next look passes in an instant.
    const clock = {
      ...systemClock,
      sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(Math.min(ms, 200), signal),
    }
    const informer = new Informer({ type, namespace }, { ...deps(), clock })
    run(informer.run(stop.signal))
    await informer.synced
    expect(informer.state).toBe('missing')
    await cluster.apply(CRD('gadgets', 'Gadget'))
    await until(20, 'the informer to find it', () => informer.state === 'synced')
    await cluster.request('DELETE', `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.${group}`)
  })

  test('a version that the server has forgotten is told apart', async () => {
    // Older than the resource itself.
    const watch = client.watch(WIDGETS, 'default', { resourceVersion: '1', timeoutSeconds: 5 })
    await expect(watch.next()).rejects.toMatchObject({ isExpired: true })
  })

  test('lists longer than a page come whole', async () => {
    const namespace = await newNamespace(cluster)
    const names = Array.from({ length: 501 }, (_, i) => `w${i}`)
    for (let i = 0; i < names.length; i += 50)
      await Promise.all(
        names
          .slice(i, i + 50)
          .map((name) => client.create(WIDGETS, namespace, { metadata: { name }, spec: { size: 1 } })),
      )
    const found = await client.list(WIDGETS, namespace)
    expect(new Set(found.map((o) => o.metadata.name))).toEqual(new Set(names))
  })

  test('the leader hands its Lease over at a graceful stop, and never two lead at once', {
    timeout: 60_000,
  }, async () => {
    const namespace = await newNamespace(cluster)
    const leading = new Set<string>()
    let most = 0
    const contender = (identity: string) => {
      const lease = new LeaderLease({ namespace, name: 'leader', identity }, deps())
      const end = new AbortController()
      const done = lease.run(async (signal) => {
        leading.add(identity)
        most = Math.max(most, leading.size)
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
        leading.delete(identity)
      }, end.signal)
      return { lease, end, done }
    }
    const a = contender('a')
    await until(10, 'a to lead', () => leading.has('a'))
    const b = contender('b')
    await until(10, 'b to have seen a', () => b.lease.holder?.startsWith('a_'))
    expect(b.lease.isLeader()).toBe(false)
    const stoppedMs = performance.now()
    a.end.abort()
    await a.done
    await until(10, 'b to lead', () => leading.has('b'))
    expect(performance.now() - stoppedMs).toBeLessThan(5_000)
    expect(b.lease.isLeader()).toBe(true)
    expect(a.lease.isLeader()).toBe(false)
    expect(most).toBe(1)
    b.end.abort()
    await b.done
  })

  describe('output Secrets', () => {
    const LABEL = 'example.com/owner'
    let namespace: string
    let writer: SecretWriter
    const request = (data: Record<string, string>, more: Partial<SecretWriteRequest> = {}): SecretWriteRequest => ({
      namespace,
      name: 'out',
      type: 'Opaque',
      data: new Map(Object.entries(data).map(([key, value]) => [key, new Secret(value)])),
      labels: { [LABEL]: 'owner-1', 'example.com/managed': 'true' },
      annotations: { 'example.com/version': '1' },
      mode: 'Create',
      ...more,
    })
    const path = () => `/api/v1/namespaces/${namespace}/secrets/out`
    const read = async () => {
      const { status, body } = await cluster.request('GET', path())
      if (status === 404) return undefined
      const data = Object.entries<string>(body.data ?? {})
      return { ...body, text: Object.fromEntries(data.map(([k, v]) => [k, Buffer.from(v, 'base64').toString()])) }
    }
    const foreign = (data: Record<string, string>, type = 'Opaque') =>
      cluster.request('POST', `/api/v1/namespaces/${namespace}/secrets`, {
        metadata: { name: 'out' },
        type,
        stringData: data,
      })

    beforeAll(() => {
      writer = new SecretWriter(client, { manager: 'keyturn', ownerLabel: LABEL })
    })
    const fresh = async () => {
      namespace = await newNamespace(cluster)
    }
    const wrote = async (r: SecretWriteRequest) => {
      const result = await writer.apply(r)
      if (result.result !== 'written') throw new Error(`${result.result}: ${result.message}`)
      return result
    }

    test('are created, changed, and lose a key that is dropped', async () => {
      await fresh()
      const first = await wrote(request({ username: 'svc', password: 'one', extra: 'x' }))
      const second = await wrote(request({ username: 'svc', password: 'two' }, { uid: first.uid }))
      expect(second.uid).toBe(first.uid)
      expect((await read())?.text).toEqual({ username: 'svc', password: 'two' })
      const again = await wrote(request({ username: 'svc', password: 'two' }, { uid: first.uid }))
      expect(again.resourceVersion).toBe(second.resourceVersion)
    })

    test('of somebody else are never taken over', async () => {
      await fresh()
      await foreign({ password: 'theirs' })
      expect(await writer.apply(request({ password: 'ours' }))).toMatchObject({ result: 'not-owned' })
      expect((await read())?.text).toEqual({ password: 'theirs' })
      expect((await read())?.metadata.labels).toBeUndefined()
    })

    test.each([
      { how: 'with other keys', data: { theirs: 'x' }, type: 'Opaque' },
      { how: 'with the same key', data: { password: 'theirs' }, type: 'Opaque' },
      { how: 'of another type', data: { other: 'x' }, type: 'example.com/other' },
    ])('made by somebody between our look and our write, $how, stay untouched', async ({ data, type }) => {
      await fresh()
      // The look answers "absent", then the other one is faster.
      const racing = new Proxy(client, {
        get(target, property) {
          if (property !== 'get') {
            const value = Reflect.get(target, property)
            return typeof value === 'function' ? value.bind(target) : value
          }
          let looked = false
          return async (...args: Parameters<KubeClient['get']>) => {
            if (looked) return target.get(...args)
            looked = true
            const before = await target.get(...args)
            await foreign(data, type)
            return before
          }
        },
      })
      const once = { get: racing.get }
      const seeing = new Proxy(racing, { get: (target, p) => (p === 'get' ? once.get : Reflect.get(target, p)) })
      const result = await new SecretWriter(seeing, { manager: 'keyturn', ownerLabel: LABEL }).apply(
        request({ password: 'ours' }),
      )
      expect(result).toMatchObject({ result: 'not-owned' })
      const after = await read()
      expect(after?.text).toEqual(data)
      expect(after?.metadata.labels ?? {}).toEqual({})
      expect(after?.metadata.annotations ?? {}).toEqual({})
    })

    test('deleted are made again; deleted and made anew by somebody else are left alone', async () => {
      await fresh()
      const first = await wrote(request({ password: 'one' }))
      await cluster.request('DELETE', path())
      const second = await wrote(request({ password: 'two' }, { uid: first.uid }))
      expect(second.uid).not.toBe(first.uid)
      await cluster.request('DELETE', path())
      await foreign({ password: 'theirs' })
      expect(await writer.apply(request({ password: 'three' }, { uid: second.uid }))).toMatchObject({
        result: 'not-owned',
      })
      await writer.remove({ namespace, name: 'out' }, second.uid, 'Create')
      expect((await read())?.text).toEqual({ password: 'theirs' })
    })

    test('keep keys and labels of others, and get back what others took from us', async () => {
      await fresh()
      const { uid } = await wrote(request({ password: 'one', username: 'svc' }))
      await cluster.request(
        'PATCH',
        path(),
        { stringData: { theirs: 'x' }, metadata: { labels: { their: 'label' } } },
        merge,
      )
      await cluster.request('PATCH', path(), { data: { password: b64('edited'), username: null } }, merge)
      const drifted = await client.get(SECRETS, { namespace, name: 'out' }, { metadataOnly: true })
      expect(drifted && managedKeysOf(drifted, 'keyturn')).toEqual([])
      await wrote(request({ password: 'one', username: 'svc' }, { uid }))
      const after = await read()
      expect(after?.text).toEqual({ password: 'one', username: 'svc', theirs: 'x' })
      expect(after?.metadata.labels).toMatchObject({ their: 'label', [LABEL]: 'owner-1' })
      const repaired = await client.get(SECRETS, { namespace, name: 'out' }, { metadataOnly: true })
      expect(repaired && managedKeysOf(repaired, 'keyturn').sort()).toEqual(['password', 'username'])
    })

    test('whose uid a crash forgot are known by their owner label and our manager', async () => {
      await fresh()
      const { uid } = await wrote(request({ password: 'one' }))
      expect(await wrote(request({ password: 'two' }))).toMatchObject({ uid })
      const other = request({ password: 'x' }, { labels: { [LABEL]: 'owner-2' } })
      expect(await writer.apply(other)).toMatchObject({ result: 'not-owned' })
    })

    test('merged into somebody’s Secret own only their keys', async () => {
      await fresh()
      const merged = request({ password: 'ours' }, { mode: 'Merge' })
      expect(await writer.apply(merged)).toMatchObject({ result: 'missing' })
      await foreign({ theirs: 'x' }, 'example.com/their-type')
      const { uid } = await wrote(merged)
      await wrote(request({ password: 'two' }, { mode: 'Merge', uid }))
      expect((await read())?.text).toEqual({ theirs: 'x', password: 'two' })
      expect((await read())?.type).toBe('example.com/their-type')
      await writer.remove({ namespace, name: 'out' }, uid, 'Merge')
      expect((await read())?.text).toEqual({ theirs: 'x' })
      const conflicting = request({ theirs: 'y' }, { mode: 'Merge' })
      expect(await writer.apply(conflicting)).toMatchObject({ result: 'not-owned' })
      expect((await read())?.text).toEqual({ theirs: 'x' })
    })

    test.each(['Create', 'Merge'] as const)(
      'that we wrote for one resource (%s) are not merged into for another',
      async (mode) => {
        await fresh()
        if (mode === 'Merge') await foreign({ theirs: 'x' })
        const { uid } = await wrote(request({ password: 'one' }, { mode }))
        const before = await read()
        const labels = { [LABEL]: 'owner-2', 'example.com/managed': 'true' }
        const other = request({ password: 'of-another', more: 'x' }, { mode: 'Merge', labels })
        expect(await writer.apply(other)).toMatchObject({ result: 'not-owned' })
        expect(await writer.apply({ ...other, uid })).toMatchObject({ result: 'not-owned' })
        expect(await read()).toEqual(before)
      },
    )

    test('are garbage collected with their owner', async () => {
      await fresh()
      // A kind that the garbage collector knows from the start: it finds new ones only every half minute.
      const owner = await client.create(CONFIG_MAPS, namespace, { metadata: { name: 'owner' } })
      const ownerReference = { apiVersion: 'v1', kind: 'ConfigMap', name: 'owner', uid: owner.metadata.uid ?? '' }
      await wrote(request({ password: 'one' }, { ownerReference }))
      await cluster.request('DELETE', `/api/v1/namespaces/${namespace}/configmaps/owner`)
      await until(30, 'garbage collection', async () => (await read()) === undefined)
    })

    test('cannot be written without rights, in a namespace that is absent, or in one that is going', async () => {
      await fresh()
      const operator = new KubeClient(await kubeconfigEndpoint(cluster.kubeconfigs.operator), deps())
      const powerless = new SecretWriter(operator, { manager: 'keyturn', ownerLabel: LABEL })
      expect(await powerless.apply(request({ password: 'x' }))).toMatchObject({ result: 'forbidden' })
      await operator[Symbol.asyncDispose]()
      const absent = request({ password: 'x' }, { namespace: 'no-such-namespace' })
      expect(await writer.apply(absent)).toMatchObject({ result: 'namespace-terminating' })
      const held = { metadata: { name: 'held', finalizers: ['example.com/hold'] } }
      await client.create(CONFIG_MAPS, namespace, held)
      await cluster.request('DELETE', `/api/v1/namespaces/${namespace}`)
      expect(await writer.apply(request({ password: 'x' }))).toMatchObject({ result: 'namespace-terminating' })
      await cluster.request(
        'PATCH',
        `/api/v1/namespaces/${namespace}/configmaps/held`,
        { metadata: { finalizers: null } },
        merge,
      )
    })
  })

  test('a finalizer is added beside others without a new generation, and taken off again', async () => {
    const namespace = await newNamespace(cluster)
    const [made] = await cluster.apply(widget(namespace, 'kept'))
    const target = { namespace, name: 'kept', uid: made.metadata.uid }
    const path = `/apis/${group}/v1/namespaces/${namespace}/widgets/kept`
    await cluster.request('PATCH', path, { metadata: { finalizers: ['example.com/other'] } }, merge)
    await addFinalizer(client, WIDGETS, target, 'example.com/ours', 'keyturn-finalizer')
    await addFinalizer(client, WIDGETS, target, 'example.com/ours', 'keyturn-finalizer')
    const { body } = await cluster.request('GET', path)
    expect(body.metadata.finalizers.sort()).toEqual(['example.com/other', 'example.com/ours'])
    expect(body.metadata.generation).toBe(1)
    await removeFinalizer(client, WIDGETS, target, 'example.com/ours')
    await removeFinalizer(client, WIDGETS, target, 'example.com/ours')
    expect((await cluster.request('GET', path)).body.metadata.finalizers).toEqual(['example.com/other'])
    await cluster.request('PATCH', path, { metadata: { finalizers: null } }, merge)
    await cluster.request('DELETE', path)
    await expect(addFinalizer(client, WIDGETS, target, 'example.com/ours', 'keyturn-finalizer')).rejects.toThrow(
      KubeError,
    )
    expect((await cluster.request('GET', path)).status).toBe(404)
  })

  test('the same status again changes nothing', async () => {
    const namespace = await newNamespace(cluster)
    const [{ metadata }] = await cluster.apply(widget(namespace, 'stated'))
    const stated = [{ type: 'Ready', status: 'True', reason: 'Ready', message: '' }] as const
    const at = (time: string) => ({ generation: 1, now: new Date(time) })
    const first = nextConditions([], stated, at('2026-01-01T00:00:00Z'))
    const one = await applyStatus(client, WIDGETS, metadata, { conditions: first }, 'keyturn-status')
    const second = nextConditions(first, stated, at('2026-01-02T00:00:00Z'))
    expect(await applyStatus(client, WIDGETS, metadata, { conditions: second }, 'keyturn-status')).toEqual(one)
    expect(await applyStatus(client, WIDGETS, { namespace, name: 'absent' }, {}, 'keyturn-status')).toBeUndefined()
  })

  test('events are written once, counted when they repeat, and cut when too long', async () => {
    const namespace = await newNamespace(cluster)
    const [{ metadata }] = await cluster.apply(widget(namespace, 'told'))
    let passedMs = 0
    const clock = { ...systemClock, monotonicMs: () => performance.now() + passedMs }
    const recorder = new EventRecorder(
      { ...deps(), clock },
      { controller: 'keyturn.dev/controller', instance: 'test-1' },
    )
    const about = { apiVersion: `${group}/v1`, kind: 'Widget', name: 'told', namespace, uid: metadata.uid }
    const say = (type: 'Normal' | 'Warning', reason: string, note: string) =>
      recorder.record(about, { type, reason, note, action: 'Test' })
    say('Normal', 'Written', 'as asked')
    say('Normal', 'Written', 'as asked')
    say('Warning', 'Failed', 'first way')
    say('Warning', 'Failed', 'second way within the minute')
    say('Normal', 'Long', 'ä'.repeat(1_000))
    await recorder.settled()
    passedMs = 61_000
    say('Normal', 'Written', 'as asked')
    await recorder.settled()
    const { body } = await cluster.request('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events`)
    const seen = body.items.map((e: { reason: string; note: string; series?: { count: number } }) => [
      e.reason,
      e.series?.count,
    ])
    expect(seen.sort()).toEqual([
      ['Failed', undefined],
      ['Long', undefined],
      ['Written', 3],
    ])
    const long = body.items.find((e: { reason: string }) => e.reason === 'Long').note
    expect(Buffer.byteLength(long)).toBeLessThanOrEqual(1024)
    expect(long.endsWith('ä…')).toBe(true)
  })

  test('events about cluster-scoped objects are accepted', async () => {
    const name = await newNamespace(cluster)
    const namespace = await client.get(NAMESPACES, { name })
    const recorder = new EventRecorder(deps(), { controller: 'keyturn.dev/controller', instance: 'test-1' })
    const uid = namespace?.metadata.uid ?? ''
    recorder.record(
      { apiVersion: 'v1', kind: 'Namespace', name, uid },
      { type: 'Normal', reason: 'Seen', note: name, action: 'Look' },
    )
    await recorder.settled()
    const { body } = await cluster.request('GET', '/apis/events.k8s.io/v1/namespaces/default/events')
    expect(body.items.filter((e: { note: string }) => e.note === name)).toHaveLength(1)
  })

  test('source and sink work together and stay quiet about our own writes', async () => {
    const namespace = await newNamespace(cluster, { team: 'a' })
    const central = await newNamespace(cluster)
    await cluster.apply(widget(namespace, 'one'))
    await cluster.apply(RIGHTS)
    let leading = true
    const endpoint = await kubeconfigEndpoint(cluster.kubeconfigs.operator)
    const operator = new KubeClient(endpoint, { ...deps(), mayWrite: () => leading })
    const { source, sink } = clusterPair(
      {
        types: [WIDGETS],
        centralNamespace: central,
        managedLabel: 'example.com/managed',
        secretManager: 'keyturn',
        statusManager: 'keyturn-status',
        finalizerManager: 'keyturn-finalizer',
        ownerLabel: 'example.com/owner',
        reporter: { controller: 'keyturn.dev/controller', instance: 'test-1' },
      },
      { ...deps(), client: operator },
    )
    const heard: string[] = []
    const hear = (ref: ResourceRef, why: string) => {
      // The cluster puts this one into every namespace, some time after it was made.
      if (ref.kind === 'ConfigMap' && ref.name === 'kube-root-ca.crt') return
      if (ref.namespace === namespace || ref.namespace === central) heard.push(`${ref.kind} ${ref.name} ${why}`)
    }
    run(source.run(stop.signal))
    await source.synced()
    expect(source.isReady()).toBe(true)
    // Known before anybody leads, and told to whoever does.
    expect(source.list('Widget', namespace)).toHaveLength(1)
    const term = new AbortController()
    await source.start(['Widget'], hear, term.signal)
    const ref = { kind: 'Widget', namespace, name: 'one' }
    const resource = await until(10, 'the widget', () => source.get(ref))
    expect(resource).toMatchObject({ spec: { size: 1 }, metadata: { namespace, generation: 1 } })
    expect(await source.namespaceLabels(namespace)).toMatchObject({ team: 'a' })
    expect(await source.namespaceLabels('no-such-namespace')).toBeUndefined()
    expect(await source.namespaceTerminating(namespace)).toBe(false)
    expect(heard.splice(0)).toEqual(['Widget one user'])

    // Our own writes: a Secret, a status, twice each, and no echo.
    const out = {
      namespace,
      name: 'out',
      type: 'Opaque',
      data: new Map([['password', new Secret('one')]]),
      labels: { 'example.com/managed': 'true', 'example.com/owner': resource.metadata.uid },
      annotations: {},
      mode: 'Create',
    } as const
    const result = await sink.applySecret(out)
    if (result.result !== 'written') throw new Error(result.result)
    expect(source.outputSecret(out)).toMatchObject({ uid: result.uid, managedKeys: ['password'] })
    await sink.writeStatus(resource, { observedGeneration: 1 })
    // Seen at once, whether the watch has brought it or not.
    expect(source.get(ref)?.status).toEqual({ observedGeneration: 1 })
    const writes = () =>
      cluster.audit().filter((r) => r.verb === 'patch' && r.requestURI.includes(`${namespace}/widgets/one/status`))
    await sink.writeStatus(resource, { observedGeneration: 1 })
    await until(10, 'the status', () => source.get(ref)?.status)
    await sink.writeStatus(source.get(ref) as Resource, { observedGeneration: 1 }) // found by the line before

    // The finalizer, an event, and a deletion that waits for us.
    const path = `/api/v1/namespaces/${namespace}/secrets/out`
    await sink.addFinalizer(resource, 'example.com/ours')
    sink.event(resource, { type: 'Normal', reason: 'Seen', note: 'all is well', action: 'Look' })
    await sink.settled()
    const { body: events } = await cluster.request('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events`)
    expect(events.items.map((e: { reason: string }) => e.reason)).toEqual(['Seen'])
    await until(10, 'the finalizer', () => source.get(ref)?.metadata.finalizers.includes('example.com/ours'))
    await until(10, 'the record of the status', () => writes().length > 0)
    expect(writes()).toHaveLength(1)
    heard.length = 0

    // Whoever has lost the lead writes nothing, late as it may come.
    leading = false
    await expect(sink.applySecret({ ...out, name: 'late' })).rejects.toMatchObject({ kind: 'unavailable' })
    await expect(sink.writeStatus(resource, { observedGeneration: 2 })).rejects.toMatchObject({ kind: 'unavailable' })
    await expect(sink.deleteSecret(out, result.uid)).rejects.toMatchObject({ kind: 'unavailable' })
    leading = true

    // Somebody else's changes are heard: the Secret edited and deleted, an annotation, an input in the central namespace.
    await cluster.request('PATCH', path, { data: { password: b64('edited') } }, merge)
    await until(10, 'the drift', () => source.outputSecret(out)?.managedKeys?.length === 0)
    await until(10, 'the drift to be told', () => heard.length > 0)
    expect(heard.splice(0)).toEqual(['Secret out user'])
    await cluster.request('DELETE', path)
    await until(10, 'the deletion to be told', () => heard.length > 0)
    expect(source.outputSecret(out)).toBeUndefined()
    expect(heard.splice(0)).toEqual(['Secret out user'])
    const annotated = { metadata: { annotations: { 'keyturn.dev/rotate-requested-at': 'now' } } }
    await cluster.request('PATCH', `/apis/${group}/v1/namespaces/${namespace}/widgets/one`, annotated, merge)
    await until(10, 'the annotation to be told', () => heard.length > 0)
    expect(heard.splice(0)).toEqual(['Widget one user'])
    const input = { metadata: { name: 'bind' }, stringData: { password: 'hush' } }
    await cluster.request('POST', `/api/v1/namespaces/${central}/secrets`, input)
    await until(10, 'the input to be told', () => heard.length > 0)
    expect(heard.splice(0)).toEqual(['Secret bind user'])
    expect((await source.readSecretKey({ namespace: central, name: 'bind', key: 'password' }))?.reveal()).toBe('hush')
    expect(await source.readSecretKey({ namespace: central, name: 'bind', key: 'absent' })).toBeUndefined()

    // Deleted: told, held by the finalizer, and gone with it.
    await cluster.request('DELETE', `/apis/${group}/v1/namespaces/${namespace}/widgets/one`)
    await until(10, 'the deletion to be told', () => source.get(ref)?.metadata.deletionTimestamp)
    expect(heard.splice(0)).toEqual(['Widget one user'])
    await sink.removeFinalizer(resource, 'example.com/ours')
    await until(10, 'the end', () => source.get(ref) === undefined)
    expect(heard.splice(0)).toContain('Widget one user')
    await cluster.request('DELETE', `/api/v1/namespaces/${namespace}`)
    await until(20, 'the end of the namespace to be told', () => source.namespaceTerminating(namespace))

    // The next term begins with all that is there, what happened in between included.
    term.abort()
    heard.length = 0
    const between = await newNamespace(cluster)
    await cluster.apply(widget(between, 'two'))
    const two = await until(10, 'the widget', () => source.get({ kind: 'Widget', namespace: between, name: 'two' }))
    expect(heard).toEqual([])
    const told: string[] = []
    await source.start(
      ['Widget'],
      ({ namespace: where, name }, why) => told.push(`${where}/${name} ${why}`),
      stop.signal,
    )
    expect(told).toContain(`${between}/two user`)
    leading = true
    await sink.writeStatus(two, { observedGeneration: 1 })
    expect(heard).toEqual([])
    stop.abort()
    await Promise.all(running.splice(0))
    await operator[Symbol.asyncDispose]()
  })
})

const merge = { type: 'application/merge-patch+json' }
const b64 = (text: string) => Buffer.from(text).toString('base64')

function sizeOf(object: KubeObject): string[] {
  const spec = object['spec'] as { size: number } // the CRD demands it
  return [String(spec.size)]
}
