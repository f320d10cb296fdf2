import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { stringify } from 'yaml'
import { KUBECTL, until } from '../support/cluster.ts'
import {
  at,
  BIND_PASSWORD,
  bindSecret,
  CENTRAL,
  condition,
  type Operator,
  read,
  ready,
  resource,
  rights,
  says,
  secretOf,
  startOperator,
} from '../support/operator.ts'
import { sharedCluster } from '../support/shared-cluster.ts'
import { binds, slapdAvailable } from '../support/slapd.ts'

/** The main job in a real cluster: from a manifest to a Secret whose password binds, and back to nothing. */

const exec = promisify(execFile)
const cluster = sharedCluster()
const ENGINE = 'corp'

describe.skipIf(!cluster || !slapdAvailable())('the operator', () => {
  if (!cluster) return
  let operator: Operator
  let namespace: string
  let begin: number

  beforeAll(async () => {
    begin = Date.now()
    operator = await startOperator(cluster)
    namespace = await operator.namespace({ tenant: 'yes' })
    await operator.engine(ENGINE)
  })
  afterAll(() => operator?.stop())

  const role = (username: string, more: object = {}) => ({
    engineRef: { name: ENGINE },
    username,
    rotationPeriod: '1h',
    output: {},
    ...more,
  })
  const applyRole = (name: string, spec: object, annotations?: Record<string, string>) =>
    cluster.apply(resource('LdapStaticRole', name, namespace, spec, annotations))
  /** A role with an account of its own, ready. */
  const readyRole = async (name: string, more: object = {}) => {
    const account = operator.account()
    await applyRole(name, role(account.username, more))
    return { ...account, object: await ready(cluster, 'ldapstaticroles', name, namespace) }
  }
  const lsr = (name: string) => read(cluster, 'ldapstaticroles', name, namespace)
  const remove = (name: string) => cluster.request('DELETE', at('ldapstaticroles', name, namespace))
  const secret = (name: string) => secretOf(cluster, namespace, name)
  const secretPath = (name: string) => `/api/v1/namespaces/${namespace}/secrets/${name}`
  const editSecret = (name: string, patch: object) =>
    cluster.request('PATCH', secretPath(name), JSON.stringify(patch), { type: 'application/merge-patch+json' })
  const gone = (what: string, check: () => Promise<unknown>, seconds = 15) =>
    until(seconds, `the end of ${what}`, async () => (await check()) === undefined)
  const inEngine = async (name: string) => {
    const { status, body, text } = await operator.server.call('GET', `${ENGINE}/static-role/${namespace}/${name}`)
    if (status !== 200 && status !== 404) throw new Error(`the engine answers ${status}: ${text}`)
    return body.data
  }
  const rotate = (name: string) =>
    operator.server.call('POST', `${ENGINE}/rotate-role/${namespace}/${name}`).then(({ status }) => status)
  const kubectl = async (...args: string[]) =>
    (await exec(KUBECTL, ['--kubeconfig', cluster.kubeconfig, ...args], { maxBuffer: 2 ** 28 })).stdout
  const events = async (name: string) => {
    const { body } = await cluster.request('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events?limit=500`)
    // biome-ignore lint/suspicious/noExplicitAny: events of the API
    return body.items.filter((event: any) => event.regarding?.name === name)
  }
  const countOf = async (name: string, wanted: string) =>
    (await events(name)).filter(({ reason }: { reason: string }) => reason === wanted).length

  test('kubectl apply of the five kinds: all are ready, and the Secret binds', async () => {
    const { username, dn } = operator.account()
    const dir = await mkdtemp(path.join(tmpdir(), 'kt-op-'))
    const { slapd } = operator
    const people = { urls: [slapd.url], bindDN: 'cn=svc-reader,ou=services,dc=example,dc=test', userAttr: 'uid' }
    const login = {
      ...people,
      bindPasswordSecretRef: { name: 'people-bind', key: 'password' },
      userDN: 'ou=people,dc=example,dc=test',
      groupDN: 'ou=groups,dc=example,dc=test',
      tls: { caConfigMapRef: { name: 'people-ca', key: 'ca.crt' } },
    }
    await bindSecret(cluster, 'people-bind', 'svc-reader-secret')
    const documents = [
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: 'people-ca', namespace: CENTRAL },
        data: { 'ca.crt': slapd.ca },
      }),
      resource('LdapGroupMapping', 'engineers', undefined, {
        authRef: { name: 'people' },
        groupName: 'engineers',
        policies: ['app-read'],
      }),
      resource('LdapStaticRole', 'app', namespace, role(username, { rotationPeriod: '24h' })),
      resource('LdapAuth', 'people', undefined, login),
      resource('AccessPolicy', 'app-read', undefined, {
        rules: [{ path: `${ENGINE}/static-cred/${namespace}/*`, capabilities: ['read'] }],
      }),
    ]
    try {
      const file = path.join(dir, 'all.yaml')
      await writeFile(file, documents.map((text) => stringify(JSON.parse(text))).join('---\n'))
      await kubectl('apply', '-f', file)
      for (const [plural, name] of [
        ['ldapauths', 'people'],
        ['accesspolicies', 'app-read'],
        ['ldapgroupmappings', 'engineers'],
        ['ldapengines', ENGINE],
      ] as const)
        await ready(cluster, plural, name)
      await kubectl('wait', '-n', namespace, '--for=condition=Ready', 'lsr/app', '--timeout=20s')
      const written = await secret('app')
      expect(written?.data).toMatchObject({ username, dn })
      expect(await binds(slapd, dn, written?.data['password'] ?? '')).toBe(true)

      const table = await kubectl('get', 'lsr', '-n', namespace)
      expect(table.split('\n')[0]?.split(/\s+/)).toEqual(
        expect.arrayContaining(['NAME', 'READY', 'REASON', 'USERNAME', 'LASTROTATION', 'AGE']),
      )
      expect(table.split('\n')[1]).toMatch(new RegExp(`^app\\s+True\\s+Ready\\s+${username}\\s`))
      expect(await kubectl('get', 'lsr', '-n', namespace, '-o', 'wide')).toMatch(/NEXTROTATION\s+SECRET/)
      expect(await kubectl('get', 'lsr', '-A', '--field-selector', `spec.engineRef.name=${ENGINE}`)).toContain('app')
      // Also where the spec leaves it to the default.
      const engines = (await kubectl('get', 'lde', ENGINE, '-o', 'wide')).split('\n')
      expect(engines[0]).toMatch(/PATH\s+SCHEMA\s+ROLES\s+CIRCUIT/)
      expect(engines[1]).toMatch(
        new RegExp(`^${ENGINE}\\s+True\\s+Ready\\s+${ENGINE}\\s+openldap\\s+\\d*\\s*Closed\\s`),
      )
      const all = await kubectl('get', 'keyturn', '-A')
      for (const one of ['ldapengine', 'ldapauth', 'ldapgroupmapping', 'accesspolicy', 'ldapstaticrole'])
        expect(all).toContain(`${one}.keyturn.dev/`)

      // The grant works: a member of the group reads the password over /v1.
      const { body } = await operator.server.call('POST', 'auth/people/login/alice', { password: 'alice-secret' })
      const credential = await operator.server.call('GET', `${ENGINE}/static-cred/${namespace}/app`, undefined, {
        token: body.auth.client_token,
      })
      expect(credential.body.data.password).toBe(written?.data['password'])

      const before = (await lsr('app')).metadata
      await kubectl('apply', '-f', file)
      expect((await lsr('app')).metadata).toMatchObject({ generation: before.generation, uid: before.uid })
    } finally {
      await rm(dir, { recursive: true, force: true })
    }
  })

  test('a rotation by period, by /v1 and by annotation: the same outcome, once each', async () => {
    const from = performance.now()
    const { username, dn } = await readyRole('turning', { rotationPeriod: '6s' })
    const passwords = new Set([(await secret('turning'))?.data['password']])
    const turned = async (version: number) => {
      const { status } = await until(20, `version ${version}`, async () => {
        const found = await lsr('turning')
        return found.status.credentialVersion >= version && condition(found) === 'True Ready' ? found : undefined
      })
      const written = await secret('turning')
      expect(status.credentialVersion).toBe(version)
      expect(written?.metadata.annotations['keyturn.dev/credential-version']).toBe(String(version))
      const password = written?.data['password'] ?? ''
      expect(passwords.has(password)).toBe(false)
      passwords.add(password)
      expect(await binds(operator.slapd, dn, password)).toBe(true)
      return status
    }
    // The period turned it by itself; from now on only when asked.
    await until(20, 'a turn by the period', async () => (await inEngine('turning')).credential_version >= 2)
    await applyRole('turning', role(username))
    await says(cluster, 'True Ready', ['ldapstaticroles', 'turning', namespace])
    const settled = (await inEngine('turning')).credential_version as number
    // The first password, and at most one in each period since.
    expect(settled).toBeLessThanOrEqual(1 + (performance.now() - from) / 5_900)
    await turned(settled)

    expect(await rotate('turning')).toBeLessThan(300)
    const byApi = await turned(settled + 1)
    // A hundredth of the period is left to chance, so that roles made together do not stay together.
    const lives = Date.parse(byApi.nextRotationTime) - Date.parse(byApi.lastRotationTime)
    expect(lives).toBeGreaterThan(3_560_000)
    expect(lives).toBeLessThanOrEqual(3_601_000)

    const ask = (value: string) =>
      cluster.request(
        'PATCH',
        at('ldapstaticroles', 'turning', namespace),
        JSON.stringify({ metadata: { annotations: { 'keyturn.dev/rotate-requested-at': value } } }),
        { type: 'application/merge-patch+json' },
      )
    await ask('now-1')
    const byAnnotation = await turned(settled + 2)
    await until(
      10,
      'the request to be answered',
      async () => (await lsr('turning')).status.lastHandledRotateRequest === 'now-1',
    )
    expect(Date.parse(byAnnotation.lastRotationTime)).toBeGreaterThanOrEqual(Date.parse(byApi.lastRotationTime))
    await ask('now-2')
    await turned(settled + 3)
    // The same value again asks for nothing: another annotation makes it look, and it finds all handled.
    await cluster.request(
      'PATCH',
      at('ldapstaticroles', 'turning', namespace),
      JSON.stringify({ metadata: { annotations: { 'keyturn.dev/reconcile-requested-at': 'later' } } }),
      { type: 'application/merge-patch+json' },
    )
    const after = await until(10, 'the look to be answered', async () => {
      const found = await lsr('turning')
      return found.status.lastHandledReconcileRequest === 'later' ? found : undefined
    })
    expect(after.status).toMatchObject({
      credentialVersion: settled + 3,
      lastHandledRotateRequest: 'now-2',
      engineRoleName: `${namespace}/turning`,
      resolvedDN: dn,
      secret: { name: 'turning' },
    })
    // Of the turns by the period, two that came close together may have been told as one.
    const told = async (reason: string) =>
      (await events('turning'))
        .filter((event: { reason: string }) => event.reason === reason)
        .map(({ note }: { note: string }) => Number(/version (\d+)/.exec(note)?.[1]))
        .filter((version: number) => version > settled)
        .sort((one: number, other: number) => one - other)
    const asked = [settled + 1, settled + 2, settled + 3]
    await until(10, 'an event of each rotation', async () => (await told('PasswordRotated')).length >= 3)
    expect(await told('PasswordRotated')).toEqual(asked)
    expect(await told('SecretWritten')).toEqual(asked)
    expect(await countOf('turning', 'Accepted')).toBe(1)
  })

  test('the role goes with its object, and so does the Secret', async () => {
    await readyRole('leaving')
    const { uid } = (await lsr('leaving')).metadata
    expect((await secret('leaving'))?.metadata.ownerReferences).toMatchObject([{ uid, controller: true }])
    await remove('leaving')
    await gone('the object', () => lsr('leaving'))
    expect(await inEngine('leaving')).toBeUndefined()
    await gone('the Secret', () => secret('leaving'))
  })

  test('what shall be retained stays: role, password and Secret, and a new object takes it up without rotating', async () => {
    const kept = { deletionPolicy: 'Retain', adoptionPolicy: 'Adopt', output: { deletionPolicy: 'Retain' } }
    const { username, dn } = await readyRole('kept', kept)
    const before = await secret('kept')
    expect(before?.metadata.ownerReferences).toBeUndefined()
    await remove('kept')
    await gone('the object', () => lsr('kept'))
    const left = await inEngine('kept')
    expect(left).toMatchObject({ credential_version: 1 })
    expect(left.owner ?? '').toBe('')
    expect((await secret('kept'))?.data).toEqual(before?.data)
    expect(await binds(operator.slapd, dn, before?.data['password'] ?? '')).toBe(true)

    await cluster.request('DELETE', secretPath('kept'))
    await applyRole('kept', role(username, kept))
    await ready(cluster, 'ldapstaticroles', 'kept', namespace)
    expect((await secret('kept'))?.data['password']).toBe(before?.data['password'])
    expect(await inEngine('kept')).toMatchObject({ credential_version: 1 })
  })

  test('a Secret that is deleted comes back at once; so does a key of it', async () => {
    await readyRole('sturdy')
    const before = await secret('sturdy')
    await cluster.request('DELETE', secretPath('sturdy'))
    const from = performance.now()
    const again = await until(20, 'the Secret to come back', () => secret('sturdy'))
    console.log(`measured: Secret deleted -> restored: ${(performance.now() - from).toFixed(0)} ms`)
    expect(again.data).toEqual(before?.data)
    expect(again.metadata.uid).not.toBe(before?.metadata.uid)

    await editSecret('sturdy', { data: { password: null } })
    await until(
      20,
      'the key to come back',
      async () => (await secret('sturdy'))?.data['password'] === before?.data['password'],
    )
    await editSecret('sturdy', { data: { password: Buffer.from('edited').toString('base64') } })
    await until(
      20,
      'the value to come back',
      async () => (await secret('sturdy'))?.data['password'] === before?.data['password'],
    )
    await editSecret('sturdy', { metadata: { labels: { 'keyturn.dev/managed': null } } })
    await until(
      20,
      'the label to come back',
      async () => (await secret('sturdy'))?.metadata.labels['keyturn.dev/managed'] === 'true',
    )
    await editSecret('sturdy', { metadata: { ownerReferences: null } })
    await until(
      20,
      'the owner to come back',
      async () => (await secret('sturdy'))?.metadata.ownerReferences?.length === 1,
    )
    expect(await inEngine('sturdy')).toMatchObject({ credential_version: 1 })
    await until(10, 'an event of it', async () => (await countOf('sturdy', 'SecretDriftCorrected')) > 0)
  })

  test('keys, labels and annotations of others survive a rotation', async () => {
    await readyRole('shared')
    const extra = { data: { theirs: 'eA==' }, metadata: { labels: { theirs: 'x' }, annotations: { theirs: 'y' } } }
    expect((await editSecret('shared', extra)).status).toBe(200)
    expect(await rotate('shared')).toBeLessThan(300)
    const after = await until(10, 'the new password', async () => {
      const found = await secret('shared')
      return found?.metadata.annotations['keyturn.dev/credential-version'] === '2' ? found : undefined
    })
    expect(after.data['theirs']).toBe('x')
    expect(after.metadata.labels['theirs']).toBe('x')
    expect(after.metadata.annotations['theirs']).toBe('y')
  })

  test("a Secret of that name that is somebody else's is left alone, and the role takes the name when it is free", async () => {
    const foreign = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'taken', namespace }, stringData: { a: 'b' } }
    await cluster.apply(JSON.stringify(foreign))
    const before = await secret('taken')
    const account = operator.account()
    await applyRole('taken', role(account.username))
    await says(cluster, 'False NotOwned', ['ldapstaticroles', 'taken', namespace])
    const object = await lsr('taken')
    expect(condition(object, 'SecretSynced')).toBe('False NotOwned')
    expect(condition(object, 'CredentialCurrent')).toBe('True Rotated')
    expect(condition(object, 'Stalled')).toBeDefined()
    expect((await secret('taken'))?.metadata.resourceVersion).toBe(before?.metadata.resourceVersion)
    await until(10, 'an event of it', async () => (await countOf('taken', 'SecretNotOwned')) === 1)
    await cluster.request('DELETE', secretPath('taken'))
    await ready(cluster, 'ldapstaticroles', 'taken', namespace)
    expect(await binds(operator.slapd, account.dn, (await secret('taken'))?.data['password'] ?? '')).toBe(true)
  })

  test("merge mode owns its keys in somebody's Secret and takes only them away", async () => {
    const { username, dn } = operator.account()
    await applyRole('merged', role(username, { output: { name: 'theirs', mode: 'Merge' } }))
    await says(cluster, 'False Missing', ['ldapstaticroles', 'merged', namespace])
    const foreign = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'theirs', namespace },
      stringData: { a: 'b' },
    }
    await cluster.apply(JSON.stringify(foreign))
    await ready(cluster, 'ldapstaticroles', 'merged', namespace)
    const merged = await secret('theirs')
    expect(Object.keys(merged?.data ?? {}).sort()).toEqual(['a', 'dn', 'password', 'username'])
    expect(merged?.metadata.ownerReferences).toBeUndefined()
    expect(await binds(operator.slapd, dn, merged?.data['password'] ?? '')).toBe(true)
    await remove('merged')
    await gone('the object', () => lsr('merged'))
    const left = await secret('theirs')
    expect(left?.data).toEqual({ a: 'b' })
    expect(left?.metadata.uid).toBe(merged?.metadata.uid)
  })

  test('merge mode overwrites nobody', async () => {
    for (const [name, values] of [
      ['plain', { data: { password: 'dGhlaXJz' } }],
      ['as-text', { stringData: { password: 'theirs' } }],
    ] as const) {
      const metadata = { name: `own-${name}`, namespace }
      await cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'Secret', metadata, ...values }))
      await applyRole(
        `over-${name}`,
        role(operator.account().username, { output: { name: metadata.name, mode: 'Merge' } }),
      )
      await says(cluster, 'False NotOwned', ['ldapstaticroles', `over-${name}`, namespace])
      expect((await secret(metadata.name))?.data).toEqual({ password: 'theirs' })
    }
  })

  test('an output that is typed and templated is what was declared', async () => {
    const { dn } = await readyRole('typed', {
      output: {
        name: 'typed-login',
        type: 'kubernetes.io/basic-auth',
        includePreviousPassword: true,
        template: { url: 'ldap://{{.Username}}@host/{{.DN}}' },
        labels: { team: 'a' },
        annotations: { 'reloader.stakater.com/match': 'true' },
      },
    })
    const first = await secret('typed-login')
    expect(first?.type).toBe('kubernetes.io/basic-auth')
    expect(first?.data['url']).toBe(`ldap://${first?.data['username']}@host/${dn}`)
    expect(first?.metadata.labels['team']).toBe('a')
    expect(await rotate('typed')).toBeLessThan(300)
    await until(
      10,
      'the previous password',
      async () => (await secret('typed-login'))?.data['previous_password'] === first?.data['password'],
    )
  })

  test('the other kinds leave the engine with their objects, an engine only when nobody uses it', async () => {
    await operator.engine('leaving', { deletionPolicy: 'Delete' })
    const { username } = operator.account()
    await applyRole('last', role(username, { engineRef: { name: 'leaving' } }))
    await ready(cluster, 'ldapstaticroles', 'last', namespace)
    await cluster.request('DELETE', at('ldapengines', 'leaving'))
    await until(10, 'the refusal', async () => {
      const { status } = await read(cluster, 'ldapengines', 'leaving')
      // biome-ignore lint/suspicious/noExplicitAny: conditions of the API
      return status.conditions.some((one: any) => one.type === 'Deleting' && one.reason === 'InUse')
    })
    await remove('last')
    await gone('the engine', () => read(cluster, 'ldapengines', 'leaving'))
    expect((await operator.server.call('GET', 'sys/mounts')).body.data).not.toHaveProperty('leaving/')

    const policy = resource('AccessPolicy', 'short', undefined, { rules: [{ path: 'a', capabilities: ['read'] }] })
    await cluster.apply(policy)
    await ready(cluster, 'accesspolicies', 'short')
    expect((await operator.server.call('GET', 'sys/policies/acl/short')).status).toBe(200)
    await cluster.request('DELETE', at('accesspolicies', 'short'))
    await gone('the policy', () => read(cluster, 'accesspolicies', 'short'))
    expect((await operator.server.call('GET', 'sys/policies/acl/short')).status).toBe(404)
    await cluster.request('DELETE', at('ldapgroupmappings', 'engineers'))
    await gone('the mapping', () => read(cluster, 'ldapgroupmappings', 'engineers'))
    expect((await operator.server.call('GET', 'auth/people/groups/engineers')).status).toBe(404)
    await cluster.request('DELETE', at('ldapauths', 'people'))
    await gone('the login mount', () => read(cluster, 'ldapauths', 'people'))
    // Retained by default: people who log in by it are not locked out.
    expect((await operator.server.call('GET', 'sys/auth')).body.data).toHaveProperty('people/')
  })

  test('a namespace goes with all that is in it, also while the directory is away', async () => {
    const away = await operator.namespace({ tenant: 'yes' })
    const near = await operator.namespace({ tenant: 'yes' })
    const exists = async (name: string) =>
      (await cluster.request('GET', `/api/v1/namespaces/${name}`)).status === 404 ? undefined : true
    const accounts = { [near]: operator.account(), [away]: operator.account() }
    for (const [where, { username }] of Object.entries(accounts))
      await cluster.apply(resource('LdapStaticRole', 'app', where, role(username)))
    for (const where of [near, away]) await ready(cluster, 'ldapstaticroles', 'app', where)
    const role404 = async (name: string) =>
      (await operator.server.call('GET', `${ENGINE}/static-role/${name}/app`)).status
    const end = async (name: string) => {
      const from = performance.now()
      await cluster.request('DELETE', `/api/v1/namespaces/${name}`)
      await gone('the role', () => read(cluster, 'ldapstaticroles', 'app', name))
      expect(await role404(name)).toBe(404)
      return gone('the namespace', () => exists(name), 30).then(() => performance.now() - from)
    }
    const up = end(near)
    await gone('the role', () => read(cluster, 'ldapstaticroles', 'app', near))
    await operator.slapd.freeze()
    try {
      // One more whose making hangs in the directory meanwhile.
      await cluster.apply(resource('LdapStaticRole', 'unborn', away, role(operator.account().username)))
      const [upMs, downMs] = await Promise.all([up, end(away)])
      console.log(
        `measured: namespace deleted -> gone: ${upMs.toFixed(0)} ms, with the directory frozen: ${downMs.toFixed(0)} ms`,
      )
    } finally {
      operator.slapd.thaw()
    }
    // Their accounts are free for others.
    await applyRole('heir', role(accounts[away]?.username ?? ''))
    await ready(cluster, 'ldapstaticroles', 'heir', namespace)
  })

  test('no password is told anywhere but in Secrets', async () => {
    const { body } = await cluster.request('GET', `/api/v1/namespaces/${namespace}/secrets`)
    const passwords = body.items.map((one: { data?: Record<string, string> }) =>
      Buffer.from(one.data?.['password'] ?? '', 'base64').toString(),
    )
    const planted = [BIND_PASSWORD, 'svc-reader-secret', 'alice-secret', ...passwords].filter((one) => one.length > 8)
    expect(planted.length).toBeGreaterThan(10)
    const told = {
      objects: await kubectl('get', 'keyturn', '-A', '-o', 'json'),
      events: await kubectl('get', 'events.events.k8s.io', '-A', '-o', 'json'),
      controller: operator.controller.output,
      server: operator.server.output,
    }
    expect(told.events).toContain('keyturn.dev/controller')
    for (const [where, text] of Object.entries(told)) {
      const found = planted.filter((one) => text.includes(one) || text.includes(Buffer.from(one).toString('base64')))
      expect(found, where).toEqual([])
    }
  })

  test('every right of the chart is used, and no request was refused for want of one', async () => {
    const granted = rights().flatMap(({ kind, metadata, rules = [] }) =>
      // biome-ignore lint/suspicious/noExplicitAny: RBAC rules
      rules.flatMap((rule: any) =>
        rule.apiGroups.flatMap((group: string) =>
          rule.resources.flatMap((plural: string) =>
            rule.verbs.map(
              (verb: string) => `${kind === 'Role' ? metadata.namespace : '*'} ${verb} ${group}/${plural}`,
            ),
          ),
        ),
      ),
    )
    const used = new Set<string>()
    const refused = new Set<string>()
    for (const record of cluster.audit()) {
      const { user, verb, objectRef, responseStatus, annotations } = record
      if (user?.username !== 'operator' || !objectRef) continue
      // Other files try on purpose what is refused.
      if (Date.parse(record.requestReceivedTimestamp) < begin) continue
      const { apiGroup = '', resource: plural, subresource } = objectRef
      const what = `${verb} ${apiGroup}/${plural}${subresource ? `/${subresource}` : ''}`
      const scopes = ['*', objectRef.namespace]
      for (const scope of scopes) used.add(`${scope} ${what}`)
      // An apply that makes an object is asked for both rights.
      if (verb === 'patch' && responseStatus?.code === 201)
        for (const scope of scopes) used.add(`${scope} ${what.replace('patch', 'create')}`)
      if (annotations?.['authorization.k8s.io/decision'] === 'forbid') refused.add(what)
    }
    const unused = granted.filter((one) => !used.has(one))
    console.log(`measured: rights granted ${granted.length}, not used in this file: ${unused.join(', ') || 'none'}`)
    // All need luck or time: a repeated event is counted on the first after a minute, a namespace is asked for only where an
    // object in it is seen before the watch has brought the namespace, and where the state comes with the watch a list is
    // made for the comparison each half hour.
    const rare = ['* patch events.k8s.io/events', '* get /namespaces']
    expect(unused.filter((one) => !rare.includes(one) && one.split(' ')[1] !== 'list')).toEqual([])
    expect([...refused]).toEqual([])
  })
})
