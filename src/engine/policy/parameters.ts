import { type HclValue, isHclObject } from './hcl.ts'
import type { Parameters } from './policy-text.ts'

/**
 * What a grant says about the fields of a request. A field is judged as it was sent and as it will be read: `" Admin"` in a list of policies, `1`
 * for true and `60m` for an hour must not get around what is denied, and a list in one text must not pass as one of its items.
 */

/** What the handler makes of a value; undefined where it knows no such field or refuses the value. */
export type Meaning = (name: string, value: unknown) => unknown

export function fieldsAllowed(
  grant: {
    readonly allowedParameters: Parameters
    readonly deniedParameters: Parameters
    readonly requiredParameters: ReadonlySet<string>
  },
  fields: Readonly<Record<string, unknown>>,
  meaning: Meaning = () => undefined,
): boolean {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined)
  const names = new Set(given.map(([name]) => name.toLowerCase()))
  for (const name of grant.requiredParameters) if (!names.has(name)) return false
  const { allowedParameters: allowed, deniedParameters: denied } = grant
  if (given.length > 0 && denied.has('*')) return false
  for (const [name, value] of given) {
    const refused = denied.get(name.toLowerCase())
    if (refused && isDenied(value, refused, (other) => meaning(name, other))) return false
    if (allowed.size === 0) continue
    const values = allowed.get(name.toLowerCase())
    if (!values && !allowed.has('*')) return false
    if (values && values.length > 0 && !isAllowed(value, values, meaning(name, value))) return false
  }
  return true
}

/** A list is denied when any of its elements is, however it is spelled. */
function isDenied(value: unknown, denied: readonly HclValue[], meaning: (value: unknown) => unknown): boolean {
  if (denied.length === 0) return true
  const meant = meaning(value)
  if ([...spellings(value), ...spellings(meant)].some((one) => matchesAny(one, denied, folded))) return true
  if (meant === undefined) return false
  return denied.some((pattern) => canonical(meaning(plain(pattern))) === canonical(meant))
}

function isAllowed(value: unknown, allowed: readonly HclValue[], meant: unknown): boolean {
  const list = Array.isArray(meant) ? meant : Array.isArray(value) ? value : undefined
  // A list is allowed as a whole, word by word, or element by element.
  const isWhole = allowed.some((one) => canonical(plain(one)) === canonical(value))
  if (!list) return isWhole || matchesAny(value, allowed, asItIs)
  return isWhole || (list.length > 0 && list.every((one) => matchesAny(one, allowed, asItIs)))
}

function spellings(value: unknown): unknown[] {
  if (Array.isArray(value)) return [value, ...value]
  if (typeof value === 'string' && value.includes(',')) return [value, ...value.split(',')]
  return [value]
}

const asItIs = (text: string) => text
/** Where names are one for all spellings, this is how. */
const folded = (text: string) => text.trim().toLowerCase()

function matchesAny(value: unknown, patterns: readonly HclValue[], fold: (text: string) => string): boolean {
  if (value === undefined) return false
  return patterns.some((pattern) => {
    if (typeof pattern === 'object' && pattern !== null) return canonical(plain(pattern)) === canonical(value)
    if (typeof value === 'object') return false
    return globMatches(fold(String(pattern)), fold(String(value)))
  })
}

/** `*` at the beginning, the end or both stands for anything. */
function globMatches(pattern: string, text: string): boolean {
  if (pattern === '*') return true
  const [open, close] = [pattern.startsWith('*'), pattern.endsWith('*')]
  const core = pattern.slice(open ? 1 : 0, close ? -1 : undefined)
  if (open && close) return text.includes(core)
  if (open) return text.endsWith(core)
  return close ? text.startsWith(core) : text === pattern
}

function plain(value: HclValue): unknown {
  if (isHclObject(value)) return Object.fromEntries(value.members.map((member) => [member.key, plain(member.value)]))
  return Array.isArray(value) ? value.map(plain) : value
}

/** JSON with the members of objects in order, so that equal values have equal texts. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  )
}
