import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { request } from 'undici'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { controllerConfig, serverConfig } from '../../src/config.ts'
import { CHART, helm, LEAST, type Rendered, renderChart, requireRendered, type Values } from '../support/chart.ts'
import { HELM, type StartedCluster, startCluster, until } from '../support/cluster.ts'
import { startKeyturn } from '../support/keyturn.ts'
import { freePort } from '../support/ports.ts'
import { untilGranted } from '../support/rights.ts'
import { sharedCluster } from '../support/shared-cluster.ts'

// Without a shared cluster the global set-up has said loudly why, or failed in CI; helm is built with its components.
const here = sharedCluster() !== undefined && existsSync(HELM)
const root = join(import.meta.dirname, '../..')
const deployment = (values?: Values) => requireRendered(renderChart(values), 'Deployment')
const podOf = (values?: Values) => deployment(values).spec.template.spec
const containers = (pod: Rendered): { engine: Rendered; controller: Rendered } => ({
  engine: pod.containers.find((c: Rendered) => c.name === 'engine'),
  controller: pod.containers.find((c: Rendered) => c.name === 'controller'),
})
const mounts = (container: Rendered): string[] => container.volumeMounts.map((m: Rendered) => m.name)

describe.skipIf(!here)('the chart, rendered', () => {
  test.each([
    ['the least values', LEAST],
    ['a trial', { dev: true, persistence: { enabled: false } }],
  ])('passes the strict linter with %s', (_, values) => {
    const { status, stdout, stderr } = helm(['lint', '--strict', CHART], values)
    expect(status, stdout + stderr).toBe(0)
  })

  test('is of the version of the package', () => {
    const { version, appVersion } = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8'))
    const expected = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
    expect({ version, appVersion }).toEqual({ version: expected, appVersion: expected })
  })

  test('refuses to render without a seal key, and says how to make one', () => {
    const values = { seal: { existingSecret: '' } }
    expect(() => renderChart(values)).toThrow(/seal\.existingSecret is required/)
    expect(() => renderChart(values, { namespace: 'vault-keeper' })).toThrow(
      /openssl rand -base64 32 \| kubectl -n vault-keeper create secret generic/,
    )
  })

  test('refuses an emptyDir as the store, except for a trial', () => {
    expect(() => renderChart({ persistence: { enabled: false } })).toThrow(/permitted only with dev=true/)
    const trial = renderChart({ dev: true, persistence: { enabled: false }, seal: { existingSecret: '' } })
    const { volumes } = requireRendered(trial, 'Deployment').spec.template.spec
    expect(volumes.find((v: Rendered) => v.name === 'data')).toEqual({ name: 'data', emptyDir: {} })
    expect(trial.filter((o) => o.kind === 'PersistentVolumeClaim')).toEqual([])
  })

  test.each<[string, Values, RegExp]>([
    ['a misspelled name', { persistance: {} }, /persistance/],
    ['a misspelled name deep inside', { server: { tls: { secret: 'x' } } }, /secret/],
    ['more replicas than SQLite can have', { replicaCount: 2 }, /replicaCount/],
    ['a label that selects the pod', { podLabels: { 'app.kubernetes.io/name': 'x' } }, /podLabels/],
    ['a label for all that selects the pod', { commonLabels: { 'app.kubernetes.io/instance': 'x' } }, /commonLabels/],
    ['a text for a switch', { dev: 'no' }, /dev/],
    ['an unknown log level', { server: { logLevel: 'loud' } }, /logLevel/],
    ['an unknown place for audit records', { server: { audit: 'syslog' } }, /audit/],
    ['a proxy that is no network', { server: { trustedProxies: ['10.0.0.1'] } }, /trustedProxies/],
    ['a port out of range', { service: { port: 70_000 } }, /port/],
    ['a digest that is none', { image: { digest: 'latest' } }, /digest/],
    ['a namespace that cannot be', { rbac: { secretNamespaces: ['Team A'] } }, /secretNamespaces/],
    ['a size without sense', { persistence: { size: 'big' } }, /size/],
    ['a grace too short for the shutdown', { terminationGracePeriodSeconds: 5 }, /terminationGracePeriodSeconds/],
    ['a directory without ports', { networkPolicy: { directories: [{ cidr: '10.0.0.0/8' }] } }, /ports/],
    ['a service account of no name', { serviceAccount: { create: false } }, /serviceAccount\.name is required/],
  ])('refuses %s', (_, values, message) => {
    expect(() => renderChart(values)).toThrow(message)
  })

  test('names every value of values.yaml in the schema', () => {
    const schema = JSON.parse(readFileSync(join(CHART, 'values.schema.json'), 'utf8'))
    const values = parse(readFileSync(join(CHART, 'values.yaml'), 'utf8'))
    expect(Object.keys(schema.properties).sort()).toEqual(Object.keys(values).sort())
    expect(schema.additionalProperties).toBe(false)
  })

  test('gives the API server token to the controller alone and the seal key to the engine alone', () => {
    const pod = podOf()
    const { engine, controller } = containers(pod)
    expect(pod.automountServiceAccountToken).toBe(false)
    expect(mounts(engine)).toEqual(['data', 'run', 'tmp', 'seal'])
    expect(mounts(controller)).toEqual(['run', 'kubernetes'])
    const volume = (name: string) => pod.volumes.find((v: Rendered) => v.name === name)
    expect(volume('seal').secret.secretName).toBe('keyturn-seal')
    expect(volume('kubernetes').projected.sources[0].serviceAccountToken.path).toBe('token')
    expect(volume('run').emptyDir.medium).toBe('Memory')
    expect(volume('data').persistentVolumeClaim.claimName).toBe('keyturn-data')
  })

  test('starts both processes with flags that they know and that meet', () => {
    const values = {
      server: { trustedProxies: ['10.0.0.0/8'], audit: 'stdout', tls: { extraNames: ['keyturn.example.org'] } },
      rbac: { secretNamespaces: ['team-a', 'team-b'] },
    }
    const { engine, controller } = containers(podOf(values))
    const server = serverConfig(engine.args.slice(1), {})
    const operator = controllerConfig(controller.args.slice(1), {})
    expect([engine.args[0], controller.args[0]]).toEqual(['server', 'controller'])
    expect(server).toMatchObject({
      dataDir: '/var/lib/keyturn',
      listen: [{ host: '0.0.0.0', port: 8200 }],
      sealKeyFile: '/seal/key',
      auditLog: '-',
      trustedProxies: ['10.0.0.0/8'],
    })
    expect(server.tlsNames).toEqual(expect.arrayContaining(['keyturn.keyturn-system.svc', 'keyturn.example.org']))
    expect(operator).toMatchObject({
      socket: server.socket,
      controllerTokenFile: server.controllerTokenFile,
      namespace: 'keyturn-system',
      identity: '$(POD_NAME)_$(POD_UID)',
      healthPort: 8081,
      secretNamespaces: ['team-a', 'team-b'],
    })
    const fields = controller.env.map(({ name, valueFrom }: Rendered) => [name, valueFrom.fieldRef.fieldPath])
    expect(fields).toEqual([
      ['POD_NAME', 'metadata.name'],
      ['POD_UID', 'metadata.uid'],
    ])
  })

  test('takes a certificate and a claim of its user', () => {
    const values = {
      server: { tls: { existingSecret: 'keyturn-tls' } },
      persistence: { existingClaim: 'mine' },
    }
    const objects = renderChart(values)
    const pod = requireRendered(objects, 'Deployment').spec.template.spec
    const server = serverConfig(containers(pod).engine.args.slice(1), {})
    expect(server.tls).toEqual({ certFile: '/tls/tls.crt', keyFile: '/tls/tls.key' })
    expect(pod.volumes.find((v: Rendered) => v.name === 'data').persistentVolumeClaim.claimName).toBe('mine')
    expect(objects.filter((o) => o.kind === 'PersistentVolumeClaim')).toEqual([])
  })

  test.each([
    [{ image: { repository: 'team/keyturn' } }, 'team/keyturn:0.1.0'],
    [
      { image: { repository: 'keyturn', tag: '0.1.1' }, global: { imageRegistry: 'r.example/x' } },
      'r.example/x/keyturn:0.1.1',
    ],
    [
      { image: { repository: 'r.example/k', tag: '1', digest: `sha256:${'a'.repeat(64)}` } },
      `r.example/k@sha256:${'a'.repeat(64)}`,
    ],
  ])('names the image by registry, tag and digest: %j', (values, image) => {
    const { engine, controller } = containers(podOf(values))
    expect([engine.image, controller.image]).toEqual([image, image])
  })

  test('leaves user and group ids to the cluster where asked', () => {
    const given = { podSecurityContext: { runAsUser: null, runAsGroup: null, fsGroup: null } }
    expect(podOf(given).securityContext).toEqual({
      runAsNonRoot: true,
      fsGroupChangePolicy: 'OnRootMismatch',
      seccompProfile: { type: 'RuntimeDefault' },
    })
  })

  test('may nothing by wildcard, and never what would make it master of the cluster', () => {
    const rules = renderChart()
      .filter((o) => o.kind === 'ClusterRole' || o.kind === 'Role')
      .flatMap((o) => o.rules)
    const words = rules.flatMap((r: Rendered) => [...r.apiGroups, ...r.resources, ...r.verbs])
    expect(words).toContain('ldapstaticroles')
    for (const word of ['*', 'escalate', 'bind', 'impersonate', 'serviceaccounts/token', 'pods/exec'])
      expect(words).not.toContain(word)
  })

  test('knows the kinds and scopes of crds/', () => {
    const crds = readdirSync(join(root, 'crds')).map((file) => parse(readFileSync(join(root, 'crds', file), 'utf8')))
    const plurals = (scope: string) =>
      crds.filter((c) => c.spec.scope === scope).map((c) => c.spec.names.plural as string)
    const objects = renderChart()
    const resources = (name: string) => [
      ...requireRendered(objects, 'ClusterRole', `keyturn-system-keyturn${name}`).rules[0].resources,
    ]
    expect(resources('').sort()).toEqual([...plurals('Cluster'), ...plurals('Namespaced')].sort())
    expect(resources('-view').sort()).toEqual([...plurals('Cluster'), ...plurals('Namespaced')].sort())
    expect(resources('-edit').sort()).toEqual(plurals('Namespaced').sort())
    expect(resources('-admin').sort()).toEqual(plurals('Cluster').sort())
  })

  test('carries the CRDs of crds/ unchanged, to be kept or left out', () => {
    const rendered = renderChart().filter((o) => o.kind === 'CustomResourceDefinition')
    const files = readdirSync(join(root, 'crds'))
    expect(rendered).toHaveLength(files.length)
    for (const file of files) {
      const crd = parse(readFileSync(join(root, 'crds', file), 'utf8'))
      const copy = rendered.find((o) => o.metadata.name === crd.metadata.name)
      expect(copy.spec).toEqual(crd.spec)
      expect(copy.metadata.annotations).toEqual({ 'helm.sh/resource-policy': 'keep' })
    }
    // Helm keeps the whole release in one Secret, which holds at most 1 MiB.
    expect(JSON.stringify(renderChart()).length).toBeLessThan(400_000)
    const kinds = (crds: Values) => renderChart({ crds }).map((o) => o.kind)
    expect(kinds({ enabled: false })).not.toContain('CustomResourceDefinition')
    const loose = renderChart({ crds: { keep: false } }).find((o) => o.kind === 'CustomResourceDefinition')
    expect(loose.metadata.annotations).toBeUndefined()
  })

  test('restricts the network where asked', () => {
    expect(renderChart().map((o) => o.kind)).not.toContain('NetworkPolicy')
    const networkPolicy = {
      enabled: true,
      ingressFrom: [{ podSelector: { matchLabels: { app: 'web' } } }],
      directories: [{ cidr: '10.1.0.0/16', ports: [636] }],
      apiServer: { cidrs: ['10.96.0.1/32'] },
    }
    const { spec } = requireRendered(renderChart({ networkPolicy }), 'NetworkPolicy')
    expect(spec.policyTypes).toEqual(['Ingress', 'Egress'])
    expect(spec.ingress[0].from).toEqual(networkPolicy.ingressFrom)
    expect(spec.egress[1].to).toEqual([{ ipBlock: { cidr: '10.96.0.1/32' } }])
    expect(spec.egress[2]).toEqual({
      ports: [{ port: 636, protocol: 'TCP' }],
      to: [{ ipBlock: { cidr: '10.1.0.0/16' } }],
    })
  })

  test('puts labels and annotations of its user on every object of its own', () => {
    const objects = renderChart({ commonLabels: { team: 'identity' }, commonAnnotations: { note: 'ours' } })
    for (const { kind, metadata } of objects) {
      expect(metadata.labels, kind).toMatchObject({ team: 'identity', 'app.kubernetes.io/name': 'keyturn' })
      if (kind !== 'CustomResourceDefinition') expect(metadata.annotations, kind).toMatchObject({ note: 'ours' })
    }
  })
})

// A cluster of its own: the first installation of CRDs and their survival can be seen only where nobody else applies them.
describe.skipIf(!here)('the chart, installed', () => {
  let cluster: StartedCluster
  beforeAll(async () => {
    cluster = await startCluster()
  })
  afterAll(() => cluster?.stop())

  const restricted = async (name: string) => {
    const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' }
    await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } }))
    return name
  }
  const run = (command: string, namespace: string, values: Values, ...more: string[]) => {
    const result = helm([command, 'kt', CHART, '-n', namespace, ...more], { ...LEAST, ...values }, cluster)
    expect(result.status, result.stderr).toBe(0)
    return result.stdout
  }
  const list = async (path: string): Promise<Rendered[]> => (await cluster.request('GET', path)).body.items
  const may = async (namespace: string, verb: string, resource: string, where?: string) => {
    const [group = '', plural = ''] = resource.split('/', 2)
    const attributes = { verb, group, resource: plural, ...(where && { namespace: where }) }
    const spec = { user: `system:serviceaccount:${namespace}:kt-keyturn`, resourceAttributes: attributes }
    const { body } = await cluster.request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      spec,
    })
    return body.status.allowed as boolean
  }

  test('is admitted under the restricted Pod Security profile, upgrades, and leaves CRDs and the store when it goes', async () => {
    const namespace = await restricted('chart-life')
    const notes = run('install', namespace, {})
    expect(notes).toContain('Keep a copy of the Secret keyturn-seal')

    const pods = () => list(`/api/v1/namespaces/${namespace}/pods`)
    const [pod] = await until(20, 'the pod to be admitted', async () => {
      const found = await pods()
      return found.length === 1 ? found : undefined
    })
    expect(pod.spec.containers.map((c: Rendered) => c.name)).toEqual(['engine', 'controller'])
    // What admission adds for pods that do not say no: a token in every container.
    expect(JSON.stringify(pod.spec.containers[0].volumeMounts)).not.toContain('serviceaccount')

    run('upgrade', namespace, { server: { logLevel: 'debug' } })
    await until(20, 'the pod of the upgrade', async () => {
      const found = await pods()
      return found.some((p) => p.spec.containers[0].args.includes('--log-level=debug'))
    })

    await cluster.apply(accessPolicy('kept'))
    expect(helm(['uninstall', 'kt', '-n', namespace], undefined, cluster).status).toBe(0)
    const crds = await list('/apis/apiextensions.k8s.io/v1/customresourcedefinitions')
    expect(crds).toHaveLength(readdirSync(join(root, 'crds')).length)
    expect((await cluster.request('GET', '/apis/keyturn.dev/v1alpha1/accesspolicies/kept')).status).toBe(200)
    expect(await list(`/api/v1/namespaces/${namespace}/persistentvolumeclaims`)).toHaveLength(1)
    const roles = await list('/apis/rbac.authorization.k8s.io/v1/clusterroles')
    expect(roles.filter((r) => r.metadata.name.startsWith(namespace))).toEqual([])

    // What it left is taken up again.
    run('install', namespace, {})
    expect((await cluster.request('GET', '/apis/keyturn.dev/v1alpha1/accesspolicies/kept')).status).toBe(200)
    expect(helm(['uninstall', 'kt', '-n', namespace], undefined, cluster).status).toBe(0)
  })

  test('a pod that breaks the profile is refused there', async () => {
    const namespace = await restricted('chart-loose')
    run('install', namespace, { securityContext: { allowPrivilegeEscalation: true } }, '--set', 'crds.enabled=false')
    const [set] = await until(20, 'the replica set to report the refusal', async () => {
      const found = await list(`/apis/apps/v1/namespaces/${namespace}/replicasets`)
      return found[0]?.status?.conditions ? found : undefined
    })
    expect(set.status.conditions[0].message).toMatch(/violates PodSecurity "restricted/)
    expect(await list(`/api/v1/namespaces/${namespace}/pods`)).toEqual([])
  })

  test('grants the controller what it needs and no more', async () => {
    const namespace = await restricted('chart-rights')
    run('install', namespace, {}, '--set', 'crds.enabled=false')
    const granted = [
      ['patch', 'keyturn.dev/ldapstaticroles', 'default'],
      ['get', '/secrets', 'default'],
      ['update', 'coordination.k8s.io/leases', namespace],
      ['watch', '/configmaps', namespace],
      ['create', 'events.k8s.io/events', 'default'],
    ] as const
    const refused = [
      ['create', 'keyturn.dev/ldapstaticroles', 'default'],
      ['delete', 'keyturn.dev/ldapstaticroles', 'default'],
      ['update', '/secrets', 'default'],
      ['update', 'coordination.k8s.io/leases', 'kube-system'],
      ['get', '/configmaps', 'default'],
      ['create', '/pods', 'default'],
      ['bind', 'rbac.authorization.k8s.io/clusterroles', undefined],
    ] as const
    for (const [verb, resource, where] of granted)
      await until(10, `${verb} ${resource} to be granted`, () => may(namespace, verb, resource, where))
    for (const [verb, resource, where] of refused)
      expect(await may(namespace, verb, resource, where), `${verb} ${resource}`).toBe(false)
  })

  test('narrows its rights over Secrets to the namespaces named', async () => {
    const namespace = await restricted('chart-narrow')
    await restricted('team-a')
    run('install', namespace, { rbac: { secretNamespaces: ['team-a'] } }, '--set', 'crds.enabled=false')
    await until(10, 'the grant', () => may(namespace, 'patch', '/secrets', 'team-a'))
    // Bind passwords of engines live beside the controller.
    await until(10, 'the grant in its own namespace', () => may(namespace, 'get', '/secrets', namespace))
    expect(await may(namespace, 'get', '/secrets', 'default')).toBe(false)
    expect(await may(namespace, 'delete', '/secrets', namespace)).toBe(false)
  })

  test.each<[string, Values]>([
    ['whole', {}],
    ['narrow', { rbac: { secretNamespaces: ['chart-works-team'] } }],
  ])('gives the controller rights with which it works: %s', async (name, values) => {
    const namespace = await restricted(`chart-works-${name}`)
    await restricted('chart-works-team')
    for (const file of readdirSync(join(root, 'crds')))
      await cluster.apply(readFileSync(join(root, 'crds', file), 'utf8'))
    run('install', namespace, values, '--set', 'crds.enabled=false')
    const account = `/api/v1/namespaces/${namespace}/serviceaccounts/kt-keyturn`
    const { body } = await cluster.request('POST', `${account}/token`, {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: {},
    })
    await using stack = new AsyncDisposableStack()
    const engine = stack.adopt(await startKeyturn(), (started) => started.stop())
    const healthPort = await freePort()
    const kubeconfig = join(engine.dataDir, 'kubeconfig')
    const config = JSON.parse(readFileSync(cluster.kubeconfig, 'utf8'))
    config.users[0].user.token = body.status.token
    writeFileSync(kubeconfig, JSON.stringify(config), { mode: 0o600 })
    const [deployed] = await list(`/apis/apps/v1/namespaces/${namespace}/deployments`)
    const args = containers(deployed.spec.template.spec).controller.args.map((arg: string) =>
      arg
        .replace('/run/keyturn/', `${engine.dataDir}/`)
        .replace('--health-port=8081', `--health-port=${healthPort}`)
        .replace('$(POD_NAME)_$(POD_UID)', `${name}_uid`),
    )
    const user = `system:serviceaccount:${namespace}:kt-keyturn`
    await untilGranted(cluster, user, renderChart(values, { release: 'kt', namespace }))
    const controller = stack.use(startProcess([...args, `--kubeconfig=${kubeconfig}`]))
    await until(30, 'the controller to be ready', async () => {
      if (controller.hasEnded()) return true
      const answer = await request(`http://127.0.0.1:${healthPort}/readyz`).catch(() => undefined)
      await answer?.body.dump()
      return answer?.statusCode === 200
    })
    expect(controller.hasEnded(), controller.output()).toBe(false)

    const policy = `chart-${name}`
    const path = `/apis/keyturn.dev/v1alpha1/accesspolicies/${policy}`
    await cluster.apply(accessPolicy(policy))
    await until(20, 'the policy to be ready', async () => {
      const conditions: Rendered[] = (await cluster.request('GET', path)).body.status?.conditions ?? []
      return conditions.some((c) => c.type === 'Ready' && c.status === 'True')
    })
    await cluster.request('DELETE', path)
    await until(20, 'the policy to go', async () => (await cluster.request('GET', path)).status === 404)
    const refused = cluster.audit().filter((r) => r.user.username === user && r.responseStatus?.code === 403)
    expect(refused.map((r) => `${r.verb} ${r.requestURI}`)).toEqual([])
  })
})

const accessPolicy = (name: string) =>
  JSON.stringify({
    apiVersion: 'keyturn.dev/v1alpha1',
    kind: 'AccessPolicy',
    metadata: { name },
    spec: { rules: [{ path: 'secret/*', capabilities: ['read'] }] },
  })

function startProcess(args: readonly string[]) {
  const main = join(import.meta.dirname, '../../src/main.ts')
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', process.execPath, main, ...args])
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (octets) => (output += octets))
  return {
    output: () => output,
    hasEnded: () => child.exitCode !== null || child.signalCode !== null,
    async [Symbol.asyncDispose]() {
      if (this.hasEnded()) return
      const gone = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGTERM')
      await gone
    },
  }
}
