import * as z from 'zod'
import { valueAt } from '../lib/value-at.ts'
import { type AnyRule, isSet, type Kind, pairLimit, rulesFor, sameValue, unwrap } from './resource.ts'

/** A spec that was understood, or why not, in sentences that name the field. */
export type SpecReading<T> = { readonly spec: T } | { readonly problems: readonly string[] }

/**
 * Reads a spec as it stands in a manifest. With `old` also the rules about what may not change. Unknown fields count as problems only
 * with `strict`: the API server prunes them, and a controller must not stumble over a field of a newer CRD.
 */
export function readSpec<S extends z.ZodObject>(
  kind: Pick<Kind<S>, 'spec'>,
  raw: unknown,
  { old, strict = false }: { old?: unknown; strict?: boolean } = {},
): SpecReading<z.output<S>> {
  const parsed = kind.spec.safeParse(raw)
  const unknown = strict ? unknownFields(kind.spec, raw, 'spec') : []
  if (!parsed.success) return { problems: [...parsed.error.issues.map((issue) => issueText(issue, raw)), ...unknown] }
  const problems = [...problemsOf(kind.spec, raw, old, 'spec'), ...unknown]
  return problems.length === 0 ? { spec: parsed.data } : { problems }
}

function issueText(issue: z.core.$ZodIssue, raw: unknown): string {
  const given = valueAt(raw, ...issue.path)
  const message = given === undefined && issue.code === 'invalid_type' ? 'is required' : issue.message
  return `${['spec', ...issue.path.map(String)].join('.')}: ${message}`
}

function problemsOf(schema: z.core.$ZodType, value: unknown, old: unknown, path: string): string[] {
  if (value === undefined) return []
  const bare = unwrap(schema)
  const problems = rulesFor(bare)
    .filter((rule) => !holds(rule, value, old))
    .map((rule) => `${rule.field ? `${path}.${rule.field}` : path}: ${rule.message}`)
  const limit = pairLimit(bare)
  if (limit !== undefined && typeof value === 'object' && value !== null && Object.keys(value).length > limit)
    problems.push(`${path}: must have at most ${limit} entries`)
  if (bare instanceof z.ZodObject && isObject(value))
    for (const [name, child] of Object.entries(bare.shape))
      problems.push(...problemsOf(child, value[name], isObject(old) ? old[name] : undefined, `${path}.${name}`))
  if (bare instanceof z.ZodArray && Array.isArray(value)) {
    if (isSet(bare) && value.some((item, at) => value.slice(0, at).some((earlier) => sameValue(earlier, item))))
      problems.push(`${path}: must not hold a value twice`)
    value.forEach((item, at) => {
      problems.push(...problemsOf(bare.element, item, undefined, `${path}[${at}]`))
    })
  }
  return problems
}

function holds(rule: AnyRule, value: unknown, old: unknown): boolean {
  // The value passed the schema that the rule was declared with, so it is of the rule's type.
  if ('check' in rule) return rule.check(value as never)
  return old === undefined || rule.allows(value as never, old as never)
}

function unknownFields(schema: z.core.$ZodType, value: unknown, path: string): string[] {
  const bare = unwrap(schema)
  if (bare instanceof z.ZodArray && Array.isArray(value))
    return value.flatMap((item, at) => unknownFields(bare.element, item, `${path}[${at}]`))
  if (!(bare instanceof z.ZodObject) || !isObject(value)) return []
  return Object.entries(value).flatMap(([name, child]) => {
    const known = bare.shape[name]
    return known ? unknownFields(known, child, `${path}.${name}`) : [`${path}.${name}: unknown field`]
  })
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
