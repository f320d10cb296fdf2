import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { findKind, KINDS } from '../../src/schema/kinds.ts'
import { API_VERSION } from '../../src/schema/resource.ts'
import { newNamespace, until } from '../support/cluster.ts'
import { installCrds } from '../support/operator.ts'
import { sharedCluster } from '../support/shared-cluster.ts'
import { SAMPLES } from '../support/spec-samples.ts'

/** The CRDs on a real API server: the samples of the unit tests through structural schema and CEL. */

const CRDS = path.resolve(import.meta.dirname, '../../crds')
const cluster = sharedCluster()

describe.skipIf(!cluster)('custom resource definitions', () => {
  let namespace: string
  let count = 0

  beforeAll(async () => {
    if (!cluster) return
    await installCrds(cluster)
    namespace = await newNamespace(cluster)
    // A kind is told of a moment before its objects are accepted.
    for (const { kind } of KINDS)
      await until(20, `${kind} to be served`, async () => {
        const { status } = await ask('POST', `${collection(kind)}?dryRun=All`, object(kind, 'first', {}))
        return status === 422
      })
  })

  const collection = (kind: string) => {
    const known = findKind(kind)
    const where = known?.scope === 'Namespaced' ? `/namespaces/${namespace}` : ''
    return `/apis/${API_VERSION}${where}/${known?.plural}`
  }
  const object = (kind: string, name: string, spec: unknown) => ({
    apiVersion: API_VERSION,
    kind,
    metadata: { name },
    spec,
  })
  const ask = async (method: string, where: string, body: unknown) => {
    if (!cluster) throw new Error('no cluster')
    return cluster.request(method, where, body)
  }
  const STRICT = 'fieldValidation=Strict'

  test.each(SAMPLES)('$kind: $title', async ({ kind, spec, old, refused }) => {
    const name = `sample-${process.pid}-${++count}`
    const all = collection(kind)
    let answer: { status: number; body: { message?: string } }
    if (old) {
      const made = await ask('POST', `${all}?${STRICT}`, object(kind, name, old))
      expect(made.status, made.body.message).toBe(201)
      const { resourceVersion } = made.body.metadata
      const next = { ...object(kind, name, spec), metadata: { name, resourceVersion } }
      answer = await ask('PUT', `${all}/${name}?dryRun=All&${STRICT}`, next)
      await ask('DELETE', `${all}/${name}`, undefined)
    } else answer = await ask('POST', `${all}?dryRun=All&${STRICT}`, object(kind, name, spec))
    if (refused === undefined) expect(answer.status, answer.body.message).toBeLessThan(300)
    else {
      expect(answer.status, JSON.stringify(answer.body)).toBe(422)
      expect(answer.body.message).toContain(refused)
    }
  })

  test('fields without behaviour are refused, not ignored', async () => {
    const spec = { engineRef: { name: 'corp' }, username: 'a', rotationPeriod: '1h', verify: { interval: '1h' } }
    const answer = await ask(
      'POST',
      `${collection('LdapStaticRole')}?dryRun=All&${STRICT}`,
      object('LdapStaticRole', 'x', spec),
    )
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('unknown field "spec.verify"')
  })

  test.each(['root', 'default'])('no AccessPolicy is called %s', async (name) => {
    const body = object('AccessPolicy', name, { policy: 'x' })
    const answer = await ask('POST', `${collection('AccessPolicy')}?dryRun=All`, body)
    expect(answer.status).toBe(422)
    expect(answer.body.message).toContain('taken')
  })

  test('a field selector finds the roles of an engine', async () => {
    const name = `selected-${process.pid}`
    const spec = { engineRef: { name }, username: 'a', rotationPeriod: '1h' }
    expect((await ask('POST', collection('LdapStaticRole'), object('LdapStaticRole', name, spec))).status).toBe(201)
    const found = await ask(
      'GET',
      `${collection('LdapStaticRole')}?fieldSelector=spec.engineRef.name%3D${name}`,
      undefined,
    )
    expect(found.body.items).toHaveLength(1)
    await ask('DELETE', `${collection('LdapStaticRole')}/${name}`, undefined)
  })

  test('every rule of every kind has a sample that it refuses, and every kind one that is fine', async () => {
    for (const file of await readdir(CRDS)) {
      const crd = parse(await readFile(path.join(CRDS, file), 'utf8'))
      const { kind } = crd.spec.names
      const own = SAMPLES.filter((sample) => sample.kind === kind)
      // The rule over names is in the test above; samples are specs.
      const messages = messagesOf(crd).filter((message) => !/names .* taken/.test(message))
      const untried = messages.filter((message) => !own.some(({ refused }) => refused && message.includes(refused)))
      expect(untried, kind).toEqual([])
      expect(own.filter(({ refused }) => refused === undefined).length, kind).toBeGreaterThan(0)
    }
  })
})

/** Messages of all rules in a CRD. */
function messagesOf(node: unknown): string[] {
  if (typeof node !== 'object' || node === null) return []
  return Object.entries(node).flatMap(([name, value]) =>
    name === 'x-kubernetes-validations' && Array.isArray(value)
      ? value.map(({ message }) => String(message))
      : messagesOf(value),
  )
}
