import * as z from 'zod'

/**
 * What a custom resource is: its names, the schemas of its spec and status, and rules over several fields. The CRD is generated from
 * this (`crd/`), and the same rules are checked where no API server does it (the standalone source, `render`).
 *
 * A rule is one record: a message, its CEL text for the API server, and the same as a function over the unparsed value. Tests run the
 * same samples through both. Structural schemas know no unions and no defaults after a transformation, so neither is used here.
 */

/** A rule over one object. `field` names the field that the error points at. */
export interface Rule<T> {
  readonly message: string
  readonly cel: string
  readonly field?: string
  readonly check: (value: T) => boolean
}

/** A rule over an object and what it was before; runs on updates only. */
export interface TransitionRule<T> {
  readonly message: string
  readonly cel: string
  readonly field?: string
  readonly allows: (value: T, old: T) => boolean
}

export type AnyRule = Rule<never> | TransitionRule<never>

const rulesOf = new WeakMap<object, readonly AnyRule[]>()
const sets = new WeakSet<object>()

/** Gives an object schema rules over several of its fields. */
export function ruled<S extends z.ZodObject>(
  schema: S,
  rules: readonly (Rule<z.input<S>> | TransitionRule<z.input<S>>)[],
): S {
  // Only `schema.safeParse`d shapes reach a rule, and they are of the type that the rule was declared for.
  rulesOf.set(schema._zod.def, rules as readonly AnyRule[])
  return schema
}

/** The rules of a schema, its wrappers not counted. */
export function rulesFor(schema: z.core.$ZodType): readonly AnyRule[] {
  return rulesOf.get(schema._zod.def) ?? []
}

/** Rules that keep fields as they were when the object was made; of optional ones the presence too (b.4: pinned on the parent). */
export function pinned<S extends z.ZodObject>(
  schema: S,
  fields: readonly (keyof z.input<S> & string)[],
): TransitionRule<z.input<S>>[] {
  return fields.map((field) => {
    const optional = isOptional(schema.shape[field])
    const same = `self.${field} == oldSelf.${field}`
    return {
      message: `${field} cannot be changed after creation`,
      cel: optional ? `has(self.${field}) == has(oldSelf.${field}) && (!has(self.${field}) || ${same})` : same,
      ...(!optional && { field }),
      allows: (value, old) => sameValue(Reflect.get(value, field), Reflect.get(old, field)),
    }
  })
}

// `.exactOptional()` makes a class of its own.
function isOptionalClass(schema: unknown): schema is z.ZodOptional | z.ZodExactOptional {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodExactOptional
}

export function isOptional(schema: unknown): boolean {
  return isOptionalClass(schema)
}

/** The schema inside an optional wrapper, else the schema itself. */
export function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  return isOptionalClass(schema) ? unwrap(schema.unwrap()) : schema
}

/** A list of at most `max` items, written as a whole. */
export function list<S extends z.ZodType>(item: S, { min = 0, max }: { min?: number; max: number }) {
  return z.array(item).min(min).max(max)
}

/** A list without duplicates and without order. */
export function set<S extends z.ZodType>(item: S, { min = 0, max }: { min?: number; max: number }) {
  const schema = z.array(item).min(min).max(max)
  sets.add(schema._zod.def)
  return schema
}

export function isSet(schema: z.core.$ZodType): boolean {
  return sets.has(schema._zod.def)
}

const maxProperties = new WeakMap<object, number>()

/** A map from texts of at most `key` characters, at most `max` pairs. */
export function map<S extends z.ZodType>(value: S, { key, max }: { key: number; max: number }) {
  const schema = z.record(z.string().max(key), value)
  maxProperties.set(schema._zod.def, max)
  return schema
}

/** A map from texts to texts. */
export function textPairs(max: number, { key, value }: { key: number; value: number }) {
  return map(z.string().max(value), { key, max })
}

export function pairLimit(schema: z.core.$ZodType): number | undefined {
  return maxProperties.get(schema._zod.def)
}

/** A column of `kubectl get`. */
export interface Column {
  readonly name: string
  readonly path: string
  readonly type?: 'string' | 'date' | 'integer'
  /** Above 0: only with `-o wide`. */
  readonly priority?: number
  readonly description?: string
}

export interface Kind<Spec extends z.ZodObject = z.ZodObject, Status extends z.ZodObject = z.ZodObject> {
  readonly kind: string
  readonly plural: string
  readonly shortName: string
  readonly scope: 'Cluster' | 'Namespaced'
  readonly description: string
  readonly spec: Spec
  readonly status: Status
  /** Beside Ready, Reason and Age, which every kind has. */
  readonly columns: readonly Column[]
  readonly selectableFields?: readonly string[]
  /** Names that no object of this kind may have. */
  readonly reservedNames?: readonly string[]
}

export const GROUP = 'keyturn.dev'
export const VERSION = 'v1alpha1'
export const API_VERSION = `${GROUP}/${VERSION}`

/** Whether two values of JSON (and dates) are equal; the order of an object's members does not matter. */
export function sameValue(one: unknown, other: unknown): boolean {
  if (one === other) return true
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return false
  if (Array.isArray(one) !== Array.isArray(other)) return false
  if (one instanceof Date || other instanceof Date) return JSON.stringify(one) === JSON.stringify(other)
  const names = Object.keys(one)
  return (
    names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && sameValue(Reflect.get(one, name), Reflect.get(other, name)))
  )
}
