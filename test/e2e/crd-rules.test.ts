import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { KINDS } from '../../src/schema/kinds.ts'
import { readSpec } from '../../src/schema/validate.ts'
import { at, installCrds, resource } from '../support/operator.ts'
import { newNamespace, sharedCluster } from '../support/shared-cluster.ts'
import { SAMPLES, type Sample } from '../support/spec-samples.ts'

/** The same samples through the API server's structural schema and CEL, and through our own check: both must say the same. */

const cluster = sharedCluster()
const CRDS = path.resolve(import.meta.dirname, '../../crds')

/** Messages of all rules of a kind, as the CRD has them. */
function messagesOf(node: unknown): string[] {
  if (typeof node !== 'object' || node === null) return []
  return Object.entries(node).flatMap(([name, value]) =>
    name === 'x-kubernetes-validations'
      ? (value as { message: string }[]).map(({ message }) => message)
      : messagesOf(value),
  )
}

describe.skipIf(!cluster)('rules of the CRDs', () => {
  if (!cluster) return
  let namespace: string
  let count = 0

  beforeAll(async () => {
    await installCrds(cluster)
    namespace = await newNamespace(cluster)
  })

  const kindOf = (name: string) => {
    const kind = KINDS.find((one) => one.kind === name)
    if (!kind) throw new Error(`kind ${name} is unknown`)
    return kind
  }

  /** What the server says to the spec: undefined when it takes it. Nothing is left behind. */
  async function refusedBy({ kind, spec, old }: Pick<Sample, 'kind' | 'spec' | 'old'>): Promise<string | undefined> {
    const { plural, scope } = kindOf(kind)
    const where = scope === 'Namespaced' ? namespace : undefined
    const name = `sample-${++count}`
    const target = at(plural, name, where)
    const [made] = old ? ((await cluster?.apply(resource(kind, name, where, old))) ?? []) : []
    const options = 'fieldManager=e2e&dryRun=All&fieldValidation=Strict'
    try {
      const answer = made
        ? await cluster?.request('PUT', `${target}?${options}`, { ...made, spec })
        : await cluster?.request('PATCH', `${target}?${options}&force=true`, resource(kind, name, where, spec))
      return answer && answer.status < 300 ? undefined : String(answer?.body?.message)
    } finally {
      if (old) await cluster?.request('DELETE', target)
    }
  }

  test.each(SAMPLES)('$kind: $title', async ({ kind, spec, old, refused }) => {
    const said = await refusedBy({ kind, spec, ...(old && { old }) })
    const reading = readSpec(kindOf(kind), spec, { ...(old && { old }), strict: true })
    const ours = 'problems' in reading ? reading.problems.join('; ') : undefined
    if (refused === undefined) expect({ said, ours }).toEqual({ said: undefined, ours: undefined })
    else {
      expect(said).toContain(refused)
      expect(ours).toContain(refused)
    }
  })

  test.each(['root', 'default'])('an AccessPolicy cannot be called %s', async (name) => {
    const spec = { rules: [{ path: 'a', capabilities: ['read'] }] }
    const answer = await cluster.request(
      'PATCH',
      `${at('accesspolicies', name)}?fieldManager=e2e&dryRun=All`,
      resource('AccessPolicy', name, undefined, spec),
    )
    expect(answer.status).toBe(422)
    expect(answer.body.message).toContain('the names root and default are taken')
    expect(kindOf('AccessPolicy').reservedNames).toContain(name)
  })

  test('an unknown field is refused where strict validation is asked for, as kubectl does', async () => {
    const spec = { engineRef: { name: 'a' }, username: 'b', rotationPeriod: '1h', rotationPerod: '1h' }
    expect(await refusedBy({ kind: 'LdapStaticRole', spec })).toContain('rotationPerod')
    expect(readSpec(kindOf('LdapStaticRole'), spec, { strict: true })).toHaveProperty('problems')
  })

  test('every rule of every kind has a sample that it refuses', () => {
    for (const file of readdirSync(CRDS)) {
      const crd = parse(readFileSync(path.join(CRDS, file), 'utf8'))
      const reasons = SAMPLES.filter(({ kind }) => kind === crd.spec.names.kind).flatMap(({ refused }) => refused ?? [])
      const untried = [...new Set(messagesOf(crd))].filter(
        (message) => !/names root and default/.test(message) && !reasons.some((reason) => message.includes(reason)),
      )
      expect(untried, crd.spec.names.kind).toEqual([])
      const fine = SAMPLES.some(({ kind, refused }) => kind === crd.spec.names.kind && refused === undefined)
      expect(fine, `${crd.spec.names.kind} has a sample that is fine`).toBe(true)
    }
  })
})
