import * as z from 'zod'
import { durationMinimumMs } from '../fields.ts'
import { type AnyRule, isOptional, isSet, pairLimit, rulesFor, unwrap } from '../resource.ts'

/*
 * From a zod schema to a structural OpenAPI v3 schema as CRDs have it. Walks the finished tree (zod's own `toJSONSchema` hands its hook
 * half-built schemas) and refuses what the API server could not check: a schema that means less there than here would be a lie.
 */

export interface StructuralSchema {
  readonly [keyword: string]: unknown
}

/** Throws where `path` cannot be expressed. */
export function structural(schema: z.core.$ZodType, path: string): StructuralSchema {
  const described = describe(schema)
  const bare = unwrap(schema)
  const { description = undefined, ...own } = { ...describe(bare), ...described }
  const rules = rulesFor(bare).map(validation)
  return {
    ...(description !== undefined && { description }),
    ...translate(bare, path),
    ...own,
    ...(rules.length > 0 && { 'x-kubernetes-validations': rules }),
  }
}

function describe(schema: z.core.$ZodType): Record<string, unknown> {
  const { description, format, mapKey } = z.globalRegistry.get(schema) ?? {}
  return {
    ...(typeof description === 'string' && { description }),
    ...(typeof format === 'string' && { format }),
    ...(typeof mapKey === 'string' && { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': [mapKey] }),
  }
}

function translate(schema: z.core.$ZodType, path: string): StructuralSchema {
  if (schema instanceof z.ZodObject) return object(schema, path)
  if (schema instanceof z.ZodArray) return array(schema, path)
  if (schema instanceof z.ZodRecord) return record(schema, path)
  if (schema instanceof z.ZodString) return string(schema, path)
  if (schema instanceof z.ZodNumber) return number(schema, path)
  if (schema instanceof z.ZodBoolean) return { type: 'boolean' }
  if (schema instanceof z.ZodEnum) return { type: 'string', enum: [...schema.options] }
  if (schema instanceof z.ZodPipe) return duration(schema, path)
  throw new Error(`${path}: a ${schema._zod.def.type} has no counterpart in a CRD`)
}

function object(schema: z.ZodObject, path: string): StructuralSchema {
  const required: string[] = []
  const properties: Record<string, StructuralSchema> = {}
  for (const [name, child] of Object.entries(schema.shape)) {
    properties[name] = structural(child, `${path}.${name}`)
    if (!isOptional(child)) required.push(name)
  }
  refuseChecks(schema, path)
  return { type: 'object', properties, ...(required.length > 0 && { required }) }
}

function array(schema: z.ZodArray, path: string): StructuralSchema {
  const { min_length: minItems, max_length: maxItems } = limits(schema, path, ['min_length', 'max_length'])
  if (maxItems === undefined) throw new Error(`${path}: a list needs a maximum`)
  return {
    type: 'array',
    ...(minItems ? { minItems } : {}),
    maxItems,
    'x-kubernetes-list-type': isSet(schema) ? 'set' : 'atomic',
    items: structural(schema.element, `${path}[]`),
  }
}

// The API server checks no keys of a map: their length is held by rules where it matters, their number by maxProperties.
function record(schema: z.ZodRecord, path: string): StructuralSchema {
  const maxProperties = pairLimit(schema)
  if (maxProperties === undefined) throw new Error(`${path}: a map needs a maximum`)
  return { type: 'object', maxProperties, additionalProperties: structural(schema.valueType, `${path}{}`) }
}

function string(schema: z.ZodString, path: string): StructuralSchema {
  const { min_length: minLength, max_length: maxLength } = limits(schema, path, [
    'min_length',
    'max_length',
    'string_format',
  ])
  if (maxLength === undefined) throw new Error(`${path}: a text needs a maximum`)
  const pattern = patternOf(schema, path)
  return { type: 'string', ...(minLength ? { minLength } : {}), maxLength, ...(pattern && { pattern }) }
}

function patternOf(schema: z.ZodString, path: string): string | undefined {
  const patterns = (schema._zod.def.checks ?? []).flatMap(({ _zod: { def } }) => {
    const pattern: unknown = Reflect.get(def, 'pattern')
    return pattern instanceof RegExp ? [pattern] : []
  })
  const [first, second] = patterns
  if (second) throw new Error(`${path}: more than one pattern`)
  if (!first) return undefined
  // The API server reads patterns as RE2: no lookaround, no backreferences, no flags.
  if (/\(\?[=!<]|\\[1-9]/.test(first.source) || first.flags !== '')
    throw new Error(`${path}: the pattern ${first} is not RE2`)
  return first.source.replaceAll('\\/', '/')
}

function number(schema: z.ZodNumber, path: string): StructuralSchema {
  if (schema.format !== 'safeint') throw new Error(`${path}: only whole numbers`)
  const { greater_than: minimum, less_than: maximum } = limits(schema, path, [
    'greater_than',
    'less_than',
    'number_format',
  ])
  if (minimum === undefined || maximum === undefined) throw new Error(`${path}: a number needs a minimum and a maximum`)
  return { type: 'integer', format: 'int64', minimum, maximum }
}

function duration(schema: z.ZodPipe, path: string): StructuralSchema {
  const leastMs = durationMinimumMs(schema)
  const text = schema.def.in
  if (leastMs === undefined || !(text instanceof z.ZodString))
    throw new Error(`${path}: a transformation has no counterpart in a CRD`)
  return {
    ...string(text, path),
    ...(leastMs > 0 && {
      'x-kubernetes-validations': [
        { rule: durationAtLeast(leastMs), message: `must be at least ${leastMs / 1000} seconds` },
      ],
    }),
  }
}

// Digits are seconds. CEL knows no days; the pattern allows them only in front and above zero, so a day is always enough.
function durationAtLeast(leastMs: number): string {
  if (leastMs > 86_400_000) throw new Error('a minimum above one day cannot be checked')
  const seconds = leastMs / 1000
  return `self.matches('^[0-9]+$') ? int(self) >= ${seconds} : (self.contains('d') || duration(self) >= duration('${seconds}s'))`
}

type Limits<K extends string> = Partial<Record<K, number>>

/** The numbers of the checks of a schema by name; refuses checks that are not in `known`. */
function limits<const K extends string>(schema: z.core.$ZodType, path: string, known: readonly K[]): Limits<K> {
  const found: Record<string, number> = {}
  for (const check of schema._zod.def.checks ?? []) {
    const { def } = check._zod
    if (!known.some((name) => name === def.check)) throw new Error(`${path}: the check ${def.check} has no counterpart`)
    for (const name of ['minimum', 'maximum', 'value']) {
      const value: unknown = Reflect.get(def, name)
      if (typeof value === 'number') found[def.check] = value
    }
  }
  // Every key came out of `known`.
  return found as Limits<K>
}

function refuseChecks(schema: z.core.$ZodType, path: string): void {
  if ((schema._zod.def.checks ?? []).length > 0) throw new Error(`${path}: write a rule instead of a refinement`)
}

function validation(rule: AnyRule): StructuralSchema {
  return { rule: rule.cel, message: rule.message, ...(rule.field && { fieldPath: `.${rule.field}` }) }
}
