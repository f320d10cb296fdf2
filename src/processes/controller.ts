import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { hostname } from 'node:os'
import { type Client, createClient } from '../client/client.ts'
import { httpTransport } from '../client/http.ts'
import type { ControllerConfig } from '../config.ts'
import { type ControllerOptions, startController } from '../controller/controller.ts'
import { inClusterEndpoint, type KubeEndpoint } from '../controller/runtime/endpoint.ts'
import { KubeClient } from '../controller/runtime/kube-client.ts'
import { kubeconfigEndpoint } from '../controller/runtime/kubeconfig.ts'
import { LeaderLease } from '../controller/runtime/lease.ts'
import { clusterPair } from '../controller/source/cluster-sink.ts'
import { openStandalone } from '../controller/source/directory-source.ts'
import { abortable } from '../lib/abortable.ts'
import { systemClock } from '../lib/clock.ts'
import { invalid, messageOf } from '../lib/errors.ts'
import type { Logger } from '../lib/log.ts'
import { systemRandom } from '../lib/random.ts'
import { Secret } from '../lib/secret.ts'
import { findKind, KINDS } from '../schema/kinds.ts'

/** `keyturn controller`: the operator beside a server, over a cluster or over a directory of manifests. It has no key and speaks no LDAP. */
interface Deps {
  readonly config: ControllerConfig
  readonly log: Logger
  readonly signal: AbortSignal
}

const world = { clock: systemClock, random: systemRandom }
const LEASE_NAME = 'keyturn-controller'

export async function startControllerProcess(
  deps: Deps,
): Promise<AsyncDisposable & { readonly failed: Promise<unknown> }> {
  const { config, log } = deps
  const what = { ...kindsOf(config), centralNamespace: config.namespace }
  await using stack = new AsyncDisposableStack()
  const client = stack.use(engineClient(config))
  const operate: Operate = (pair, signal) => startController({ ...pair, client, ...what, ...world, log, signal })
  const state = { isReady: () => false }
  if (config.healthPort > 0) stack.use(await serveHealth(config.healthPort, () => state.isReady()))
  // In an object: a promise returned from an async function would be waited for.
  const { running } =
    config.manifestsDir !== undefined && config.secretsDir !== undefined
      ? await standalone(deps, operate, config.manifestsDir, config.secretsDir, state)
      : await inCluster(deps, operate, stack, state)
  const { promise: failed, resolve: fail } = Promise.withResolvers<unknown>()
  const ended = running.catch(fail)
  stack.defer(() => ended)
  const resources = stack.move()
  return { failed, [Symbol.asyncDispose]: () => resources.disposeAsync() }
}

type Ready = { isReady: () => boolean }
/** Works on what the pair shows until the signal aborts. */
type Operate = (pair: Pick<ControllerOptions, 'source' | 'sink'>, signal: AbortSignal) => Promise<void>

async function standalone({ log, signal }: Deps, operate: Operate, manifests: string, secrets: string, state: Ready) {
  const pair = await openStandalone({ manifests, secrets, ...world, log })
  state.isReady = () => true
  return { running: operate(pair, signal) }
}

async function inCluster({ config, log, signal }: Deps, operate: Operate, stack: AsyncDisposableStack, state: Ready) {
  const endpoint = await endpointOf(config)
  // Work that was under way when the lead was lost must not overwrite what the next leader writes.
  const kube = stack.use(new KubeClient(endpoint, { ...world, mayWrite: () => lease.isLeader() }))
  const instance = config.identity || hostname()
  const lease = new LeaderLease(
    { namespace: config.namespace, name: LEASE_NAME, identity: instance },
    { client: kube, ...world, log },
  )
  const types = KINDS.map(({ kind, plural, scope }) => ({
    group: 'keyturn.dev',
    version: 'v1alpha1',
    plural,
    kind,
    namespaced: scope === 'Namespaced',
  }))
  const pair = clusterPair(
    {
      types,
      centralNamespace: config.namespace,
      ...(config.secretNamespaces.length > 0 && { secretNamespaces: config.secretNamespaces }),
      managedLabel: 'keyturn.dev/managed',
      secretManager: 'keyturn',
      statusManager: 'keyturn-status',
      finalizerManager: 'keyturn-finalizer',
      ownerLabel: 'keyturn.dev/owner-uid',
      reporter: { controller: 'keyturn.dev/controller', instance },
    },
    { client: kube, ...world, log },
  )
  state.isReady = () => pair.source.isReady()
  const campaign = async () => {
    // Who knows nothing could do nothing with the lead. Whoever waits for it goes on knowing everything.
    await abortable(pair.source.synced(), signal)
    await lease.run((leading) => operate(pair, leading), signal)
  }
  log.info({ server: endpoint.server, instance }, 'controller started; it campaigns for leadership once all is known')
  return { running: Promise.all([pair.source.run(signal), campaign()]).then(() => undefined) }
}

/** The kinds to work on; all where none are named. */
function kindsOf({ controllers }: ControllerConfig): { controllers?: readonly string[] } {
  const unknown = controllers.find((kind) => !findKind(kind))
  if (unknown !== undefined)
    throw invalid(`--controllers: there is no kind ${unknown}, but ${KINDS.map(({ kind }) => kind).join(', ')}`)
  return controllers.length > 0 ? { controllers } : {}
}

function engineClient(config: ControllerConfig): Client {
  return createClient({
    transport: httpTransport({ address: `unix:${config.socket}` }),
    ...world,
    // Read anew at each call: the engine makes another one at each of its starts.
    token: async () => new Secret((await readFile(config.controllerTokenFile, 'utf8')).trim()),
  })
}

async function endpointOf({ kubeconfig, inCluster }: ControllerConfig): Promise<KubeEndpoint> {
  if (kubeconfig === undefined && inCluster) return inClusterEndpoint(inCluster)
  return kubeconfigEndpoint(kubeconfig)
}

/** `/readyz` and `/livez` for the kubelet, over plain HTTP on the pod's address: they tell nothing but how the process is. */
async function serveHealth(port: number, isReady: () => boolean): Promise<AsyncDisposable> {
  const server: Server = createServer((request, response) => {
    const ok = request.url === '/livez' || (request.url === '/readyz' && isReady())
    response.writeHead(ok ? 200 : 503, { 'content-type': 'text/plain' }).end(ok ? 'ok\n' : 'not ready\n')
  })
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, resolve)).catch((error) => {
    throw new Error(`--health-port ${port}: ${messageOf(error)}`)
  })
  return {
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
