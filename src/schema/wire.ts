import type * as z from 'zod'
import { invalid } from '../lib/errors.ts'
import { forgivingField } from './fields.ts'

/** The HTTP spelling of a schema: snake_case names, forgiving values, every field optional (absent keeps the old value). */
export interface WireBody<T> {
  /** Field names as they stand in a request. */
  readonly names: readonly string[]
  /**
   * Reads the fields of a request. Null counts as absent; unknown names are returned so that the answer can warn about them.
   * Throws `invalid` naming the field as the caller wrote it.
   */
  parse(fields: Readonly<Record<string, unknown>>): { value: Partial<T>; unknown: string[] }
}

/** Derives the HTTP spelling; `spelling` gives the names that are not plain snake_case (`{ bindDN: 'binddn' }`). */
export function wire<S extends z.ZodObject>(
  schema: S,
  spelling: Partial<Record<keyof z.output<S> & string, string>> = {},
): WireBody<z.output<S>> {
  const fields = new Map<string, { name: string; schema: z.ZodType }>()
  for (const [name, type] of Object.entries(schema.shape)) {
    const lenient = forgivingField(type)
    if (!lenient) throw new Error(`the field ${name} has no HTTP spelling: make it with a function of fields.ts`)
    const spelled: string | undefined = Reflect.get(spelling, name)
    fields.set(spelled ?? snakeCase(name), { name, schema: lenient })
  }
  return {
    names: [...fields.keys()],
    parse(given) {
      const value: Record<string, unknown> = {}
      const unknown: string[] = []
      for (const [name, raw] of Object.entries(given)) {
        if (raw === null || raw === undefined) continue
        const known = fields.get(name)
        if (!known) {
          unknown.push(name)
          continue
        }
        const parsed = known.schema.safeParse(raw)
        if (!parsed.success) {
          const why = parsed.error.issues.map((issue) => issue.message).join('; ')
          throw invalid(`field validation failed: ${name}: ${why}`)
        }
        value[known.name] = parsed.data
      }
      // Each value was read by the schema of its own field.
      return { value: value as Partial<z.output<S>>, unknown }
    },
  }
}

export function snakeCase(name: string): string {
  return name.replace(/[A-Z]+/g, (capitals) => `_${capitals.toLowerCase()}`)
}
