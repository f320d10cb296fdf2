import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent } from 'undici'
import { parseAllDocuments } from 'yaml'
import { freePort } from './ports.ts'

/**
 * A real Kubernetes control plane as child processes: etcd, kube-apiserver, kube-controller-manager. No kubelet, so Pods
 * are created (Pod Security admission included) and stay pending. The processes die with the process that started them.
 * Users: `admin` may everything; `operator`, `tenant-a`, `tenant-b` and `viewer` are bound to nothing until a test binds them.
 */

export const USERS = ['admin', 'operator', 'tenant-a', 'tenant-b', 'viewer'] as const
export type ClusterUser = (typeof USERS)[number]

/** What a test needs to reach the cluster; plain data, so that one run's files can share one cluster. */
export interface ClusterInfo {
  /** Path of the administrator's kubeconfig. */
  readonly kubeconfig: string
  /** Path of a kubeconfig for each user. */
  readonly kubeconfigs: Readonly<Record<ClusterUser, string>>
  readonly server: string
  readonly caFile: string
  readonly adminToken: string
  readonly tokens: Readonly<Record<ClusterUser, string>>
  /** JSON lines: metadata of every request, bodies too for the group keyturn.dev; never a Secret's body. */
  readonly auditLog: string
}

export interface KubeAnswer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary objects of the API
  readonly body: any
}

/** The administrator's hands in a test. */
export interface Cluster extends ClusterInfo {
  /** Server-side applies each YAML document (waiting for CRDs to be served); returns the objects. Throws on a refusal. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary objects of the API
  apply(yaml: string): Promise<any[]>
  /** One raw request; a string body of a PATCH is sent as an apply patch. Never throws on a status. */
  request(
    method: string,
    path: string,
    body?: unknown,
    options?: { user?: ClusterUser; type?: string },
  ): Promise<KubeAnswer>
  /** The audit records so far. The API server writes a record a moment after its answer. */
  // biome-ignore lint/suspicious/noExplicitAny: audit records
  audit(): any[]
}

export type Component = 'etcd' | 'kube-apiserver' | 'kube-controller-manager'

export interface StartedCluster extends Cluster {
  /** Freezes a component: its connections stay open and nothing answers. */
  freeze(component: Component): void
  thaw(component: Component): void
  /** Kills a component without warning; `start` brings it back with the same data on the same port. */
  kill(component: Component): Promise<void>
  start(component: Component): Promise<void>
  stop(): Promise<void>
}

const SOURCE = join(import.meta.dirname, 'cluster')
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'keyturn-e2e')
const VERSION = /^\s*k8s\.io\/kubernetes v(\S+)/m.exec(readFileSync(join(SOURCE, 'go.mod'), 'utf8'))?.[1]
const BINARY = join(CACHE, `kubernetes-v${VERSION}`)

/** The helm client that is built beside the cluster's components. */
export const HELM = join(CACHE, 'helm')
/** And kubectl, of the cluster's own version. */
export const KUBECTL = join(CACHE, 'kubectl')

/** True when a cluster can be started here: the binary is cached, or Go can build it (some minutes, once). */
export function clusterAvailable(): boolean {
  const starter = spawnSync('setpriv', ['--version'], { stdio: 'ignore' })
  if (starter.status !== 0) return false
  if (existsSync(BINARY)) return true
  return spawnSync('go', ['version'], { stdio: 'ignore' }).status === 0
}

/** Builds what is missing in the cache; a few minutes the first time, nothing afterwards. */
export function buildCluster(): void {
  if ([BINARY, HELM, KUBECTL].every((file) => existsSync(file))) return
  console.error('building the Kubernetes components for tests, once; this takes some minutes')
  const built = spawnSync('bash', [join(SOURCE, 'cluster.sh'), 'build'], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, CACHE, WORK: mkdtempSync(join(tmpdir(), 'kt-build-')) },
  })
  if (built.status !== 0) throw new Error(`cluster.sh build failed with ${built.status ?? built.signal}`)
}

/** Starts a control plane of its own; some 5 seconds. */
export async function startCluster(
  options: { readonly auditBodies?: readonly string[] } = {},
): Promise<StartedCluster> {
  buildCluster()
  const dir = mkdtempSync(join(tmpdir(), 'kt-kube-'))
  const pki = join(dir, 'pki')
  mkdirSync(pki)
  const etcdPort = await freePort()
  const peerPort = await freePort()
  const apiPort = await freePort()
  const managerPort = await freePort()
  const server = `https://127.0.0.1:${apiPort}`
  const caFile = join(pki, 'apiserver.crt')
  const auditLog = join(dir, 'audit.log')
  const tokens = writeTokens(pki)
  const managerToken = 'e2e-controller-manager-token'
  const kubeconfigs = Object.fromEntries(
    USERS.map((user) => [user, writeKubeconfig(join(dir, `kubeconfig-${user}`), server, caFile, tokens[user])]),
  ) as Record<ClusterUser, string> // one entry for each member of USERS
  writeFileSync(join(dir, 'audit.yaml'), auditPolicy(options.auditBodies ?? ['keyturn.dev']))
  const managerConfig = writeKubeconfig(join(dir, 'kubeconfig-manager'), server, caFile, managerToken)
  const key = spawnSync('openssl', ['genrsa', '-out', join(pki, 'sa.key'), '2048'], { stdio: 'ignore' })
  if (key.status !== 0) throw new Error('openssl could not make the service account key')

  const commands = new Map<Component, readonly string[]>()
  const children = new Map<Component, ChildProcess>()
  const start = (name: Component, args: readonly string[]): void => {
    const log = openSync(join(dir, `${name}.log`), 'a')
    children.set(
      name,
      spawn('setpriv', ['--pdeathsig', 'KILL', BINARY, name, ...args], { stdio: ['ignore', log, log] }),
    )
    commands.set(name, args)
  }
  const kill = async (name: Component): Promise<void> => {
    const child = children.get(name)
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const exited = new Promise((done) => child.once('exit', done))
    child.kill('SIGKILL')
    await exited
  }
  const stop = async () => {
    for (const name of [...children.keys()].reverse()) await kill(name)
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
  }

  try {
    start('etcd', [
      ...['--data-dir', join(dir, 'etcd'), '--unsafe-no-fsync', '--log-level', 'warn'],
      ...[
        '--listen-client-urls',
        `http://127.0.0.1:${etcdPort}`,
        '--advertise-client-urls',
        `http://127.0.0.1:${etcdPort}`,
      ],
      ...['--listen-peer-urls', `http://127.0.0.1:${peerPort}`],
    ])
    start('kube-apiserver', [
      ...['--etcd-servers', `http://127.0.0.1:${etcdPort}`, '--bind-address', '127.0.0.1'],
      ...['--advertise-address', '127.0.0.1', '--secure-port', String(apiPort), '--cert-dir', pki],
      ...[
        '--service-account-issuer',
        'https://kubernetes.default.svc',
        '--service-account-key-file',
        join(pki, 'sa.key'),
      ],
      ...['--service-account-signing-key-file', join(pki, 'sa.key'), '--token-auth-file', join(pki, 'tokens.csv')],
      ...['--authorization-mode', 'Node,RBAC', '--service-cluster-ip-range', '10.96.0.0/24', '--profiling=false'],
      ...['--audit-policy-file', join(dir, 'audit.yaml'), '--audit-log-path', auditLog, '--audit-log-mode', 'blocking'],
    ])
    const cluster = connectCluster({
      kubeconfig: kubeconfigs.admin,
      kubeconfigs,
      server,
      caFile,
      adminToken: tokens.admin,
      tokens,
      auditLog,
    })
    const oneEnded = () => [...children.values()].some((c) => c.exitCode !== null)
    const ready = async () => {
      const isReady = async () => (await cluster.request('GET', '/readyz')).status === 200
      await until(120, 'kube-apiserver', () => oneEnded() || isReady()).catch((error: unknown) => {
        throw new Error(`${error}: ${logTail(dir)}`)
      })
      if (oneEnded()) throw new Error(`a component ended: ${logTail(dir)}`)
    }
    await ready()
    start('kube-controller-manager', [
      ...['--kubeconfig', managerConfig, '--leader-elect=false', '--bind-address', '127.0.0.1'],
      ...['--secure-port', String(managerPort), '--service-account-private-key-file', join(pki, 'sa.key')],
      ...['--root-ca-file', caFile, '--profiling=false', '--controllers', CONTROLLERS.join(',')],
    ])
    await until(30, 'the default service account', async () => {
      return (await cluster.request('GET', '/api/v1/namespaces/default/serviceaccounts/default')).status === 200
    })
    return {
      ...cluster,
      freeze: (name) => void children.get(name)?.kill('SIGSTOP'),
      thaw: (name) => void children.get(name)?.kill('SIGCONT'),
      kill,
      async start(name) {
        start(name, commands.get(name) ?? [])
        if (name !== 'kube-controller-manager') await ready()
      },
      stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
}

const CONTROLLERS = [
  'garbage-collector-controller',
  'namespace-controller',
  'serviceaccount-controller',
  'serviceaccount-token-controller',
  'root-ca-certificate-publisher-controller',
  'deployment-controller',
  'replicaset-controller',
  'statefulset-controller',
  'daemonset-controller',
  'clusterrole-aggregation-controller',
]

/** The administrator's hands on a cluster that runs already. */
export function connectCluster(info: ClusterInfo): Cluster {
  let agent: Agent | undefined
  const request: Cluster['request'] = async (method, path, body, { user = 'admin', type } = {}) => {
    if (!existsSync(info.caFile)) return { status: 0, body: undefined }
    agent ??= new Agent({ connections: 8, connect: { ca: readFileSync(info.caFile, 'utf8') } })
    const contentType = type ?? (method === 'PATCH' ? 'application/apply-patch+yaml' : 'application/json')
    try {
      const answer = await agent.request({
        origin: info.server,
        // undici knows the methods as a union of literals; any method name is legal on the wire.
        method: method as 'GET',
        path,
        headers: {
          authorization: `Bearer ${info.tokens[user]}`,
          'content-type': contentType,
          accept: 'application/json',
        },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      })
      const text = await answer.body.text()
      return { status: answer.statusCode, body: text.startsWith('{') ? JSON.parse(text) : text }
    } catch (error) {
      return { status: 0, body: String(error) }
    }
  }

  const pathOf = async (apiVersion: string, kind: string, namespace: string | undefined, name: string) => {
    const base = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`
    const path = await until(20, `${apiVersion} ${kind} to be served`, async () => {
      const found = (await request('GET', base)).body?.resources?.find(
        (r: { kind: string; name: string }) => r.kind === kind && !r.name.includes('/'),
      )
      if (!found) return undefined
      return `${base}${found.namespaced ? `/namespaces/${namespace ?? 'default'}` : ''}/${found.name}/${name}`
    })
    return path
  }

  return {
    ...info,
    request,
    async apply(yaml) {
      const results = []
      for (const document of parseAllDocuments(yaml)) {
        const object = document.toJS()
        if (!object) continue
        const path = await pathOf(object.apiVersion, object.kind, object.metadata.namespace, object.metadata.name)
        const send = () => request('PATCH', `${path}?fieldManager=e2e&force=true`, JSON.stringify(object))
        let answer = await send()
        // A CRD is served by discovery a moment before its objects are accepted, a namespace a moment before its account.
        for (let tries = 0; [404, 429, 503].includes(answer.status) && tries < 50; tries++) {
          await sleep(100)
          answer = await send()
        }
        if (answer.status >= 300 || answer.status === 0)
          throw new Error(
            `apply ${object.kind} ${object.metadata.name}: ${answer.status} ${JSON.stringify(answer.body?.message ?? answer.body)}`,
          )
        results.push(answer.body)
      }
      return results
    },
    audit() {
      const lines = readFileSync(info.auditLog, 'utf8').split('\n')
      return lines.filter((line) => line.endsWith('}')).map((line) => JSON.parse(line))
    },
  }
}

let namespaces = 0

/** Makes a namespace of its own for a test; names never repeat within a run. */
export async function newNamespace(cluster: Cluster, labels: Record<string, string> = {}): Promise<string> {
  const name = `e2e-${process.pid}-${++namespaces}`
  await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } }))
  return name
}

/**
 * Looks every 50 ms until `check` answers something true, and returns that; throws after `seconds`. A look that throws is no answer: it is
 * told when the time is over.
 */
export async function until<T>(seconds: number, what: string, check: () => Promise<T> | T): Promise<NonNullable<T>> {
  const deadline = performance.now() + seconds * 1000
  for (;;) {
    // There is always a look after the deadline: this process may have stood still since the one before.
    const isLast = performance.now() > deadline
    let cause: unknown
    try {
      const found = await check()
      if (found) return found
    } catch (error) {
      cause = error
    }
    if (isLast) throw new Error(`waited ${seconds} s for ${what}${cause ? `: ${cause}` : ''}`, { cause })
    await sleep(50)
  }
}

function writeTokens(pki: string): Record<ClusterUser, string> {
  const tokens = Object.fromEntries(USERS.map((user) => [user, `e2e-${user}-token`])) as Record<ClusterUser, string> // as above
  const lines = USERS.map((user) => `${tokens[user]},${user},${user}${user === 'admin' ? ',"system:masters"' : ''}`)
  lines.push('e2e-controller-manager-token,e2e-controller-manager,e2e-controller-manager,"system:masters"')
  writeFileSync(join(pki, 'tokens.csv'), `${lines.join('\n')}\n`)
  return tokens
}

function writeKubeconfig(path: string, server: string, caFile: string, token: string): string {
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'e2e', cluster: { server, 'certificate-authority': caFile } }],
    users: [{ name: 'e2e', user: { token } }],
    contexts: [{ name: 'e2e', context: { cluster: 'e2e', user: 'e2e' } }],
    'current-context': 'e2e',
  }
  writeFileSync(path, JSON.stringify(config), { mode: 0o600 })
  return path
}

function auditPolicy(groupsWithBodies: readonly string[]): string {
  return JSON.stringify({
    apiVersion: 'audit.k8s.io/v1',
    kind: 'Policy',
    omitStages: ['RequestReceived'],
    rules: [
      { level: 'None', users: ['e2e-controller-manager', 'system:apiserver', 'system:anonymous'] },
      { level: 'Metadata', resources: [{ group: '', resources: ['secrets', 'configmaps'] }] },
      { level: 'RequestResponse', resources: groupsWithBodies.map((group) => ({ group })) },
      { level: 'Metadata' },
    ],
  })
}

function logTail(dir: string): string {
  return ['etcd', 'kube-apiserver']
    .map((name) => `${name}: ${readFileSync(join(dir, `${name}.log`), 'utf8').slice(-1500)}`)
    .join('\n')
}
