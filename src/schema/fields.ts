import * as z from 'zod'
import { parseDurationMs } from '../lib/duration.ts'
import { AppError } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'

/**
 * The kinds of field that every schema is made of. Each knows two spellings of its values: the strict one of custom resources (what
 * the CRD can say), and the forgiving one of the HTTP API. `wire.ts` finds the second by the first.
 */

// Keyed by the definition, which survives `.describe()` and `.meta()` (they copy the schema around it).
const forgiving = new WeakMap<object, z.ZodType>()

function field<S extends z.ZodType>(strict: S, lenient: z.ZodType<z.output<S>, unknown>): S {
  forgiving.set(strict._zod.def, lenient)
  return strict
}

/** The forgiving spelling of a field, found through optional, default and prefault wrappers. */
export function forgivingField(schema: z.core.$ZodType): z.ZodType | undefined {
  const found = forgiving.get(schema._zod.def)
  if (found) return found
  const inner: unknown = Reflect.get(schema._zod.def, 'innerType')
  return inner instanceof z.core.$ZodType ? forgivingField(inner) : undefined
}

const scalarText = z.union([z.string(), z.number(), z.boolean()]).transform((value) => String(value))

/** Text of at most `max` characters. */
export function text(max: number) {
  return field(z.string().max(max), scalarText.pipe(z.string().max(max)))
}

/** Text that is secret: a password, a key. Resources name a Secret instead; this is for HTTP bodies. */
export function secretText(max: number) {
  const toSecret = z
    .string()
    .max(max)
    .transform((value) => new Secret(value))
  return field(toSecret, scalarText.pipe(toSecret))
}

const TRUE = new Set(['1', 't', 'T', 'true', 'TRUE', 'True'])
const FALSE = new Set(['0', 'f', 'F', 'false', 'FALSE', 'False'])

/** True or false. */
export function flag() {
  const lenient = z.union([z.boolean(), z.number(), z.string()]).transform((value, context) => {
    if (typeof value === 'boolean') return value
    if (TRUE.has(String(value))) return true
    if (FALSE.has(String(value))) return false
    context.addIssue({ code: 'custom', message: 'must be true or false' })
    return z.NEVER
  })
  return field(z.boolean(), lenient)
}

/** A whole number from `min` to `max`. */
export function integer({ min, max }: { min: number; max: number }) {
  const strict = z.int().min(min).max(max)
  const digits = z
    .string()
    .regex(/^-?\d{1,15}$/, 'must be a whole number')
    .transform(Number)
  return field(strict, z.union([z.number(), digits]).pipe(strict))
}

/** One of a closed list of words. */
export function choice<const T extends readonly [string, ...string[]]>(words: T) {
  return field(z.enum(words), z.enum(words))
}

// The strict spelling is what the API server can check too: nothing negative, no empty text, days only in front and not zero.
const STRICT_DURATION =
  /^([0-9]{1,9}|[1-9][0-9]{0,4}d([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h))*|([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h))+)$/

const leastMs = new WeakMap<object, number>()

/** The smallest value of a duration field in milliseconds; undefined for a field of another kind. */
export function durationMinimumMs(schema: z.core.$ZodType): number | undefined {
  return leastMs.get(schema._zod.def)
}

/** Digits or a Go duration (`3600`, `90s`, `1h30m`, `7d`), in **milliseconds** after parsing; whole seconds. */
export function duration({ minMs = 0 }: { minMs?: number } = {}) {
  const parse = (value: string | number, context: z.RefinementCtx) => {
    try {
      const ms = parseDurationMs(value, 'it')
      if (ms >= minMs) return ms
      context.addIssue({ code: 'custom', message: `must be at least ${minMs / 1000} seconds` })
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      context.addIssue({ code: 'custom', message: 'must be a duration such as 3600, "90s", "1h" or "7d"' })
    }
    return z.NEVER
  }
  const format = 'must be a duration such as "3600", "90s", "1h" or "7d"'
  const strict = z.string().max(40).regex(STRICT_DURATION, format).transform(parse)
  leastMs.set(strict._zod.def, minMs)
  return field(strict, z.union([z.number(), z.string()]).transform(parse))
}

/** A list of texts, each trimmed and at most `max` characters; HTTP also takes one comma-separated string. At most 1,000 items. */
export function names(max: number) {
  const strict = z.array(z.string().trim().max(max)).max(1000)
  const commas = z.string().transform((value) => (value.trim() === '' ? [] : value.split(',')))
  return field(strict, z.union([commas, z.array(scalarText)]).pipe(strict))
}

/** An object of short texts, such as token metadata; HTTP also takes it as JSON text or as a list of `key=value`. */
export function textMap(max: number) {
  const strict = z.record(z.string().max(max), z.string().max(max))
  const lenient = z
    .union([z.record(z.string(), scalarText), z.string(), z.array(z.string())])
    .transform((value, context) => {
      if (typeof value === 'string' && value.trim().startsWith('{')) {
        try {
          return JSON.parse(value)
        } catch {
          context.addIssue({ code: 'custom', message: 'must be an object of texts' })
          return z.NEVER
        }
      }
      if (typeof value === 'object' && !Array.isArray(value)) return value
      const pairs = (Array.isArray(value) ? value : value.split(',')).filter((pair) => pair.trim() !== '')
      if (pairs.some((pair) => pair.indexOf('=') < 1)) {
        context.addIssue({ code: 'custom', message: 'must be an object of texts, or a list of key=value' })
        return z.NEVER
      }
      return Object.fromEntries(pairs.map((pair) => [pair.split('=', 1)[0], pair.slice(pair.indexOf('=') + 1)]))
    })
  return field(strict, lenient.pipe(strict))
}
