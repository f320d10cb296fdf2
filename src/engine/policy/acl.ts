import type { Operation } from '../request.ts'
import type { HclValue } from './hcl.ts'
import { fieldsAllowed, type Meaning } from './parameters.ts'
import type { Capability, Parameters, PolicyRule } from './policy-text.ts'

/**
 * What a set of policies says about one request. Pure. The most specific pattern that matches decides alone; the rules that several
 * policies have for that very pattern are merged, and a `deny` among them wins.
 */
export interface CompiledPolicy {
  readonly exact: ReadonlyMap<string, readonly PolicyRule[]>
  readonly wild: readonly { readonly rule: PolicyRule; readonly matches: RegExp }[]
}

/** What is allowed at a path, by all policies together. */
interface Grant {
  readonly capabilities: ReadonlySet<Capability>
  readonly allowedParameters: Parameters
  readonly deniedParameters: Parameters
  readonly requiredParameters: ReadonlySet<string>
}

/** Puts the rules of one policy into the form that answers fast. */
export function compilePolicy(rules: readonly PolicyRule[]): CompiledPolicy {
  const exact = new Map<string, PolicyRule[]>()
  const wild: { rule: PolicyRule; matches: RegExp }[] = []
  for (const rule of rules) {
    if (!isWild(rule.pattern)) exact.set(rule.pattern, [...(exact.get(rule.pattern) ?? []), rule])
    else wild.push({ rule, matches: matcherOf(rule.pattern) })
  }
  return { exact, wild }
}

/** The grant of the most specific pattern for a path; undefined where none matches. A list is asked with and without trailing slash. */
export function grantFor(policies: readonly CompiledPolicy[], path: string, isList = false): Grant | undefined {
  const bare = path.replace(/\/+$/, '')
  const spellings = isList ? [`${bare}/`, bare] : [path]
  let best: PolicyRule[] = []
  const consider = (rule: PolicyRule) => {
    const order = best[0] ? compareSpecific(rule.pattern, best[0].pattern) : 1
    if (order > 0) best = [rule]
    else if (order === 0) best.push(rule)
  }
  for (const policy of policies) {
    for (const spelling of spellings) for (const rule of policy.exact.get(spelling) ?? []) consider(rule)
    for (const { rule, matches } of policy.wild)
      if (spellings.some((spelling) => matches.test(spelling))) consider(rule)
  }
  return best.length > 0 ? merge(best) : undefined
}

/** Whether a grant covers an operation with these fields. `exists` is asked only where `create` and `update` make a difference. */
export async function permits(
  grant: Grant | undefined,
  request: {
    readonly operation: Operation
    readonly exists: () => Promise<boolean>
    readonly fields: Readonly<Record<string, unknown>>
    readonly meaning?: Meaning
    readonly needsSudo: boolean
  },
): Promise<boolean> {
  if (!grant || grant.capabilities.has('deny')) return false
  const { capabilities } = grant
  if (request.needsSudo && !capabilities.has('sudo')) return false
  if (request.operation === 'write') {
    const [create, update] = [capabilities.has('create'), capabilities.has('update')]
    if (create !== update ? (await request.exists()) !== update : !create) return false
  } else if (!capabilities.has(request.operation)) {
    return false
  }
  if (request.operation === 'list' || request.operation === 'delete') return true
  return fieldsAllowed(grant, request.fields, request.meaning)
}

/** Greater than 0 when pattern `a` is more specific than `b`; 0 only for equal patterns. */
function compareSpecific(a: string, b: string): number {
  return (
    firstWild(a) - firstWild(b) ||
    Number(!a.endsWith('*')) - Number(!b.endsWith('*')) ||
    pluses(b) - pluses(a) ||
    a.length - b.length ||
    (a === b ? 0 : a > b ? 1 : -1)
  )
}

function isWild(pattern: string): boolean {
  return pattern.endsWith('*') || pluses(pattern) > 0
}

function firstWild(pattern: string): number {
  // A pattern without any wildcard is more specific than every pattern with one that matches the same path.
  if (!isWild(pattern)) return Number.MAX_SAFE_INTEGER
  const plus = /(?:^|\/)\+(?:\/|$)/.exec(pattern)
  const at = plus ? pattern.indexOf('+', plus.index) : pattern.length
  return Math.min(at, pattern.endsWith('*') ? pattern.length - 1 : pattern.length)
}

function pluses(pattern: string): number {
  return pattern.split('/').filter((segment) => segment === '+').length
}

function matcherOf(pattern: string): RegExp {
  const isPrefix = pattern.endsWith('*')
  const segments = (isPrefix ? pattern.slice(0, -1) : pattern).split('/')
  const source = segments.map((s) => (s === '+' ? '[^/]+' : s.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))).join('/')
  return new RegExp(`^${source}${isPrefix ? '' : '$'}`, 's')
}

function merge(rules: readonly PolicyRule[]): Grant {
  return {
    capabilities: new Set(rules.flatMap((rule) => [...rule.capabilities])),
    allowedParameters: union(rules.map((rule) => rule.allowedParameters)),
    deniedParameters: union(rules.map((rule) => rule.deniedParameters)),
    requiredParameters: new Set(rules.flatMap((rule) => rule.requiredParameters)),
  }
}

function union(all: readonly Parameters[]): Parameters {
  const merged = new Map<string, readonly HclValue[]>()
  for (const parameters of all)
    for (const [name, values] of parameters) {
      const known = merged.get(name)
      // No values means every value, and stays so.
      const every = values.length === 0 || known?.length === 0
      merged.set(name, every ? [] : [...(known ?? []), ...values])
    }
  return merged
}
