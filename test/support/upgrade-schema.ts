import { isDeepStrictEqual } from 'node:util'

/** Compares two versions of a CustomResourceDefinition: what the older one admitted, the newer one must admit too. */
export interface Crd {
  readonly spec: {
    readonly scope: string
    readonly versions: readonly {
      readonly name: string
      readonly served: boolean
      readonly schema: { readonly openAPIV3Schema: Schema }
    }[]
  }
}

interface Schema {
  readonly type?: string
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly additionalProperties?: Schema
  readonly items?: Schema
  readonly enum?: readonly string[]
  readonly pattern?: string
  readonly format?: string
  readonly 'x-kubernetes-list-type'?: string
  readonly 'x-kubernetes-list-map-keys'?: readonly string[]
  readonly 'x-kubernetes-validations'?: readonly { readonly rule: string }[]
}

/** Limits, and the value that is none. */
const UPPER = ['maxLength', 'maxItems', 'maxProperties', 'maximum'] as const
const LOWER = ['minLength', 'minItems', 'minProperties', 'minimum'] as const
/** What cannot be compared but for being the same. */
const SAME = ['pattern', 'format', 'x-kubernetes-list-type', 'x-kubernetes-list-map-keys'] as const

/** Where the new definition refuses what the old one admitted, in sentences; a pattern or rule that only looks otherwise counts. */
export function narrowed(old: Crd, now: Crd): string[] {
  const found = old.spec.scope === now.spec.scope ? [] : [`the scope is ${now.spec.scope}, was ${old.spec.scope}`]
  for (const { name, schema } of old.spec.versions.filter(({ served }) => served)) {
    const same = now.spec.versions.find((version) => version.name === name && version.served)
    if (same) found.push(...narrowedSchema(schema.openAPIV3Schema, same.schema.openAPIV3Schema, name))
    else found.push(`the version ${name} is not served`)
  }
  return found
}

function narrowedSchema(old: Schema, now: Schema | undefined, at: string): string[] {
  if (!now) return [`${at} is gone`]
  const found: string[] = []
  if (old.type !== now.type) found.push(`${at} is ${now.type}, was ${old.type}`)
  for (const name of now.required ?? []) if (!old.required?.includes(name)) found.push(`${at}.${name} is required now`)
  for (const word of old.enum ?? [])
    if (now.enum && !now.enum.includes(word)) found.push(`${at} no longer takes ${word}`)
  if (!old.enum && now.enum) found.push(`${at} takes only ${now.enum.join(', ')}`)
  const limit = (schema: Schema, name: string, none: number) => Number(Reflect.get(schema, name) ?? none)
  for (const name of UPPER)
    if (limit(now, name, Number.POSITIVE_INFINITY) < limit(old, name, Number.POSITIVE_INFINITY))
      found.push(`${at}: ${name} is smaller`)
  for (const name of LOWER)
    if (limit(now, name, Number.NEGATIVE_INFINITY) > limit(old, name, Number.NEGATIVE_INFINITY))
      found.push(`${at}: ${name} is larger`)
  for (const name of SAME)
    if (now[name] !== undefined && !isDeepStrictEqual(now[name], old[name])) found.push(`${at}: ${name} is another one`)
  for (const { rule } of now['x-kubernetes-validations'] ?? [])
    if (!old['x-kubernetes-validations']?.some((known) => known.rule === rule)) found.push(`${at}: new rule ${rule}`)
  for (const [name, inner] of Object.entries(old.properties ?? {}))
    found.push(...narrowedSchema(inner, now.properties?.[name], `${at}.${name}`))
  if (old.additionalProperties)
    found.push(...narrowedSchema(old.additionalProperties, now.additionalProperties, `${at}.*`))
  if (old.items) found.push(...narrowedSchema(old.items, now.items, `${at}[]`))
  return found
}
