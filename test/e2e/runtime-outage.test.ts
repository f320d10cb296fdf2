import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Informer } from '../../src/controller/runtime/informer.ts'
import { KubeClient } from '../../src/controller/runtime/kube-client.ts'
import { CONFIG_MAPS } from '../../src/controller/runtime/kube-object.ts'
import { kubeconfigEndpoint } from '../../src/controller/runtime/kubeconfig.ts'
import { LeaderLease } from '../../src/controller/runtime/lease.ts'
import { systemClock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { clusterAvailable, type StartedCluster, startCluster, until } from '../support/cluster.ts'

/** A control plane of its own: it is frozen and killed here. */
describe.skipIf(!clusterAvailable())('when the API server goes away', () => {
  let cluster: StartedCluster
  let client: KubeClient
  const stop = new AbortController()
  const running: Promise<void>[] = []
  const namespace = 'default'
  const deps = () => ({ client, clock: systemClock, random: systemRandom, log: createLogger({ level: 'silent' }) })

  beforeAll(async () => {
    cluster = await startCluster()
    client = new KubeClient(await kubeconfigEndpoint(cluster.kubeconfig), deps())
  })
  afterAll(async () => {
    stop.abort()
    await Promise.all(running)
    await client[Symbol.asyncDispose]()
    await cluster.stop()
  })

  test('killed and started again, the informer goes on and has missed nothing', async () => {
    const heard: string[] = []
    const informer = new Informer({ type: CONFIG_MAPS, namespace }, deps())
    informer.onChange(({ type, key }) => heard.push(`${type} ${key}`))
    await client.create(CONFIG_MAPS, namespace, { metadata: { name: 'before' } })
    running.push(informer.run(stop.signal))
    await until(10, 'the first object', () => heard.includes('added default/before'))
    await cluster.kill('kube-apiserver')
    await until(10, 'the loss to be noticed', () => informer.state === 'failing')
    await cluster.start('kube-apiserver')
    await cluster.request('DELETE', '/api/v1/namespaces/default/configmaps/before')
    await cluster.request('POST', '/api/v1/namespaces/default/configmaps', { metadata: { name: 'after' } })
    await until(
      60,
      'both changes',
      () => heard.includes('added default/after') && heard.includes('deleted default/before'),
    )
    expect(heard.filter((what) => what.endsWith('default/before'))).toEqual([
      'added default/before',
      'deleted default/before',
    ])
    expect(informer.state).toBe('synced')
    expect(informer.missedEvents).toBe(0)
  })

  test('frozen, the leader gives up its lead in 10 s and takes it again later', { timeout: 90_000 }, async () => {
    const lease = new LeaderLease({ namespace, name: 'leader', identity: 'a' }, deps())
    const terms: string[] = []
    let endedMs = Number.NaN
    const lead = async (signal: AbortSignal) => {
      terms.push('began')
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
      endedMs = performance.now()
      terms.push('ended')
    }
    running.push(lease.run(lead, stop.signal))
    await until(10, 'the lead', () => lease.isLeader())
    cluster.freeze('kube-apiserver')
    const frozenMs = performance.now()
    await until(20, 'the end of the lead', () => terms.includes('ended'))
    // Others may begin 15 s after the last renewal, and that was at most 2.4 s before. Precise times are in lease.test.ts.
    expect(endedMs - frozenMs).toBeLessThan(12_600)
    expect(lease.isLeader()).toBe(false)
    cluster.thaw('kube-apiserver')
    await until(40, 'the lead again', () => lease.isLeader())
    expect(terms).toEqual(['began', 'ended', 'began'])
  })
})
