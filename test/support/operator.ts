import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { Agent } from 'undici'
import { type Rendered, renderChart } from './chart.ts'
import { type Cluster, type KubeAnswer, newNamespace, until } from './cluster.ts'
import { type Keyturn, startKeyturn } from './keyturn.ts'
import { untilGranted } from './rights.ts'
import { type Slapd, startSlapd } from './slapd.ts'

/**
 * The whole product against a real API server and a real directory: slapd, `keyturn server`, and `keyturn controller` as the user `operator`
 * with exactly the rights that the chart gives it. Accounts `uid=bulk-<n>,ou=bulk` are there for tests to manage.
 */
export interface Operator {
  readonly cluster: Cluster
  readonly slapd: Slapd
  readonly server: Keyturn
  /** The controller that the harness started; tests may kill it and start another. */
  controller: Controller
  /** Another process of the controller, with its own identity. */
  startController(identity: string, flags?: readonly string[]): Promise<Controller>
  /** An account that no other test of the file uses. */
  account(): Account
  namespace(labels?: Record<string, string>): Promise<string>
  /** Makes an LdapEngine over the directory with a bind Secret of its own, and waits until it is ready. */
  engine(name: string, spec?: object): Promise<void>
  /** Removes every object of ours while the controller still runs, then stops all. */
  stop(): Promise<void>
}

export interface Account {
  readonly username: string
  readonly dn: string
}

export interface Controller {
  readonly identity: string
  readonly pid: number
  readonly output: string
  kill(signal?: NodeJS.Signals): Promise<void>
  signal(signal: NodeJS.Signals): void
}

export const CENTRAL = 'keyturn-system'
const LEASE = `/apis/coordination.k8s.io/v1/namespaces/${CENTRAL}/leases/keyturn-controller`
export const BULK_DN = 'ou=bulk,dc=example,dc=test'
/** Bind password of the engines that `engine()` makes; no log, status or event may hold it. */
export const BIND_PASSWORD = 'svc-manager-secret'
const BIND_DN = 'cn=svc-manager,ou=services,dc=example,dc=test'

const ROOT = path.resolve(import.meta.dirname, '../..')
const PLURALS = ['ldapstaticroles', 'ldapgroupmappings', 'ldapauths', 'ldapengines', 'accesspolicies'] as const

export async function startOperator(
  cluster: Cluster,
  { bulk = 120, logLevel = 'debug' }: { bulk?: number; logLevel?: 'debug' | 'info' } = {},
): Promise<Operator> {
  const [slapd, server] = await Promise.all([
    startSlapd({ BULK: String(bulk) }),
    startKeyturn({ env: { KEYTURN_LOG_LEVEL: logLevel } }),
    installCrds(cluster),
  ])
  await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: CENTRAL } }))
  for (const object of rights()) await cluster.apply(JSON.stringify(object))
  await untilGranted(cluster, 'operator', rights())
  const controllers = new Set<Controller>()
  let used = 0
  const operator: Operator = {
    cluster,
    slapd,
    server,
    controller: undefined as unknown as Controller, // set below, before anybody sees this object
    async startController(identity, flags = []) {
      const controller = await launch(operator, identity, [...flags, '--log-level', logLevel])
      controllers.add(controller)
      return controller
    },
    account() {
      used += 1
      if (used > bulk) throw new Error(`more than ${bulk} accounts are needed`)
      return { username: `bulk-${used}`, dn: `uid=bulk-${used},${BULK_DN}` }
    },
    namespace: (labels) => newNamespace(cluster, labels),
    async engine(name, spec = {}) {
      await bindSecret(cluster, `${name}-bind`)
      await cluster.apply(resource('LdapEngine', name, undefined, { ...engineSpec(slapd, `${name}-bind`), ...spec }))
      await ready(cluster, 'ldapengines', name)
    },
    async stop() {
      try {
        await removeEverything(cluster)
      } finally {
        for (const controller of controllers) await controller.kill()
        await server.stop()
        await slapd.stop()
        // The controller of another file makes its own, and shows that it may.
        await cluster.request('DELETE', LEASE)
        // Other files count on an operator without rights.
        for (const object of rights().filter(({ kind }) => kind.endsWith('Binding')))
          await cluster.request('DELETE', pathOf(object))
      }
    },
  }
  operator.controller = await operator.startController('first')
  return operator
}

/** The rules of the chart for the controller, given to the user `operator` instead of the chart's service account. */
export function rights(): Rendered[] {
  const kinds = ['ClusterRole', 'Role', 'ClusterRoleBinding', 'RoleBinding']
  const objects = renderChart({}, { release: 'e2e', namespace: CENTRAL }).filter(({ kind }) => kinds.includes(kind))
  const bound = new Set(
    objects.filter(({ roleRef }) => roleRef).map(({ roleRef }) => `${roleRef.kind} ${roleRef.name}`),
  )
  return objects
    .filter(({ kind, metadata, roleRef }) => roleRef || bound.has(`${kind} ${metadata.name}`))
    .map((object) =>
      object.roleRef
        ? { ...object, subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'operator' }] }
        : object,
    )
}

function pathOf({ kind, metadata }: Rendered): string {
  const where = metadata.namespace ? `namespaces/${metadata.namespace}/` : ''
  return `/apis/rbac.authorization.k8s.io/v1/${where}${kind.toLowerCase()}s/${metadata.name}`
}

export async function installCrds(cluster: Cluster): Promise<void> {
  const dir = path.join(ROOT, 'crds')
  for (const file of readdirSync(dir)) await cluster.apply(readFileSync(path.join(dir, file), 'utf8'))
  await until(20, 'the CRDs to be served', async () => {
    const { body } = await cluster.request('GET', '/apis/keyturn.dev/v1alpha1')
    return PLURALS.every((plural) => body?.resources?.some((r: { name: string }) => r.name === plural))
  })
}

export function engineSpec(slapd: Slapd, bindSecretName: string): Record<string, unknown> {
  return {
    urls: [slapd.url],
    bindDN: BIND_DN,
    bindPasswordSecretRef: { name: bindSecretName, key: 'password' },
    userDN: BULK_DN,
    userAttr: 'uid',
    requestTimeout: '5s',
    tenancy: [
      {
        namespaces: { selector: { matchLabels: { tenant: 'yes' } } },
        kinds: ['StaticRole'],
        allowedDNs: [BULK_DN],
        minRotationPeriod: '5s',
      },
    ],
  }
}

export async function bindSecret(cluster: Cluster, name: string, password = BIND_PASSWORD): Promise<void> {
  const metadata = { name, namespace: CENTRAL }
  await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'Secret', metadata, stringData: { password } }))
}

/** A resource of ours as text for `apply`. */
export function resource(
  kind: string,
  name: string,
  namespace: string | undefined,
  spec: object,
  annotations?: Record<string, string>,
): string {
  const metadata = { name, ...(namespace && { namespace }), ...(annotations && { annotations }) }
  return JSON.stringify({ apiVersion: 'keyturn.dev/v1alpha1', kind, metadata, spec })
}

export function at(plural: string, name: string, namespace?: string): string {
  return `/apis/keyturn.dev/v1alpha1/${namespace ? `namespaces/${namespace}/` : ''}${plural}/${name}`
}

// biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary objects
export async function read(cluster: Cluster, plural: string, name: string, namespace?: string): Promise<any> {
  return found(await cluster.request('GET', at(plural, name, namespace)))
}

/** Only a 404 says that something is not there. */
// biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary objects
function found({ status, body }: KubeAnswer): any {
  if (status === 404) return undefined
  if (status !== 200) throw new Error(`the API server answers ${status}: ${JSON.stringify(body?.message ?? body)}`)
  return body
}

/** `True Ready` and the like, of the generation that stands there; undefined when nothing is said of it yet. */
export function condition(object: Rendered, type = 'Ready'): string | undefined {
  if (object?.status?.observedGeneration !== object?.metadata?.generation) return undefined
  const found = object?.status?.conditions?.find((one: { type: string }) => one.type === type)
  return found && `${found.status} ${found.reason}`
}

/** Waits until a condition reads like this, and returns the object. */
export async function says(
  cluster: Cluster,
  wanted: string,
  where: readonly [plural: string, name: string, namespace?: string | undefined],
  { type = 'Ready', seconds = 20 }: { type?: string; seconds?: number } = {},
): Promise<Rendered> {
  let last: Rendered
  try {
    return await until(seconds, 'it', async () => {
      last = await read(cluster, ...where)
      return condition(last, type) === wanted ? last : undefined
    })
  } catch (cause) {
    const told = JSON.stringify(last?.status?.conditions ?? last ?? 'absent', undefined, 1)
    throw new Error(`${where.join(' ')} did not say ${type}: ${wanted} in ${seconds} s, but ${told}`, { cause })
  }
}

export const ready = (cluster: Cluster, plural: string, name: string, namespace?: string) =>
  says(cluster, 'True Ready', [plural, name, namespace])

/** A Secret with its values as text; undefined when absent. */
export async function secretOf(
  cluster: Cluster,
  namespace: string,
  name: string,
): Promise<{ metadata: Rendered; type: string; data: Record<string, string> } | undefined> {
  const body = found(await cluster.request('GET', `/api/v1/namespaces/${namespace}/secrets/${name}`))
  if (!body) return undefined
  const values = Object.entries<string>(body.data ?? {})
  const data = Object.fromEntries(values.map(([key, value]) => [key, Buffer.from(value, 'base64').toString()]))
  return { metadata: body.metadata, type: body.type, data }
}

/** Follows the Secrets of a namespace; each change is noted with the moment at which it came. */
export interface SecretWatch {
  /** Waits for the first change of that Secret (after `since`) for which `check` holds. */
  next(name: string, since: number, check?: (secret: Rendered) => boolean): Promise<SeenSecret>
  stop(): void
}
export interface SeenSecret {
  /** Wall clock, and the monotonic clock of this process. */
  readonly wallMs: number
  readonly atMs: number
  readonly password: string
  readonly version: number
}

export async function watchSecrets(cluster: Cluster, namespace: string): Promise<SecretWatch> {
  const agent = new Agent({ connect: { ca: readFileSync(cluster.caFile, 'utf8') }, bodyTimeout: 0 })
  const stop = new AbortController()
  const answer = await agent.request({
    origin: cluster.server,
    method: 'GET',
    path: `/api/v1/namespaces/${namespace}/secrets?watch=true`,
    headers: { authorization: `Bearer ${cluster.adminToken}` },
    signal: stop.signal,
  })
  const seen: (SeenSecret & { readonly object: Rendered })[] = []
  const waiting = new Set<() => void>()
  const reading = (async () => {
    let rest = ''
    for await (const chunk of answer.body) {
      const lines = (rest + String(chunk)).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) {
        const { object } = JSON.parse(line)
        seen.push({
          object,
          wallMs: Date.now(),
          atMs: performance.now(),
          password: Buffer.from(object.data?.password ?? '', 'base64').toString(),
          version: Number(object.metadata.annotations?.['keyturn.dev/credential-version']),
        })
      }
      for (const wake of waiting) wake()
    }
  })().catch(() => undefined)
  return {
    async next(name, since, check = () => true) {
      const deadline = performance.now() + 20_000
      for (;;) {
        const found = seen.find((one) => one.object.metadata.name === name && one.atMs >= since && check(one.object))
        if (found) return found
        if (performance.now() > deadline) throw new Error(`no such change of the Secret ${name} in 20 s`)
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, 1000)
          const wake = () => {
            clearTimeout(timer)
            waiting.delete(wake)
            resolve()
          }
          waiting.add(wake)
        })
      }
    },
    stop() {
      stop.abort()
      void reading.finally(() => agent.destroy())
    },
  }
}

/** `measured: <what> p50 … p95 … p99 … max … ms of <n>`, on one line. */
export function measured(what: string, samples: readonly number[]): { p95: number; p99: number } {
  const sorted = [...samples].sort((a, b) => a - b)
  const quantile = (q: number) => sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)] ?? Number.NaN
  const [p50, p95, p99, max] = [quantile(0.5), quantile(0.95), quantile(0.99), quantile(1)]
  const round = (ms: number) => ms.toFixed(0)
  console.log(
    `measured: ${what}: p50 ${round(p50)} p95 ${round(p95)} p99 ${round(p99)} max ${round(max)} ms of ${samples.length}`,
  )
  return { p95, p99 }
}

async function launch({ cluster, server }: Operator, identity: string, more: readonly string[]): Promise<Controller> {
  let output = ''
  const flags = [
    ...more,
    ...['--socket', server.socket, '--controller-token', path.join(server.dataDir, 'controller-token')],
    ...['--kubeconfig', cluster.kubeconfigs.operator, '--namespace', CENTRAL, '--identity', identity],
  ]
  const command = [process.execPath, path.join(ROOT, 'src/main.ts'), 'controller', ...flags]
  const child: ChildProcess = spawn('setpriv', ['--pdeathsig', 'KILL', '--', ...command], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => (output += data))
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null
  await until(20, 'the controller to start', () => hasEnded() || output.includes('it campaigns for leadership'))
  if (hasEnded()) throw new Error(`the controller ended:\n${output}`)
  return {
    identity,
    pid: child.pid ?? 0,
    get output() {
      return output
    },
    async kill(signal = 'SIGKILL') {
      if (hasEnded()) return
      const gone = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGCONT')
      child.kill(signal)
      await gone
    },
    signal: (signal) => void child.kill(signal),
  }
}

async function removeEverything(cluster: Cluster): Promise<void> {
  for (const plural of PLURALS) {
    const all = async () => (await cluster.request('GET', `/apis/keyturn.dev/v1alpha1/${plural}`)).body?.items ?? []
    for (const { metadata } of await all())
      await cluster.request('DELETE', at(plural, metadata.name, metadata.namespace))
    await until(20, `the end of all ${plural}`, async () => (await all()).length === 0).catch(async () => {
      for (const { metadata } of await all())
        await cluster.request(
          'PATCH',
          at(plural, metadata.name, metadata.namespace),
          JSON.stringify({ metadata: { finalizers: null } }),
          { type: 'application/merge-patch+json' },
        )
    })
  }
}
