import { isUtf8 } from 'node:buffer'
import { invalid } from '../lib/errors.ts'

type Fields = Readonly<Record<string, unknown>>

const NO_FIELDS: Fields = Object.freeze({})
const DEEPEST = 100
/** No request needs a tenth of it, while the largest body could hold millions: to take those apart holds up everybody else for seconds. */
const MOST_VALUES = 50_000
const QUOTE = 34
const COMMA = 44
const OPEN_BRACKET = 91
const BACKSLASH = 92
const OPEN_BRACE = 123

/** The parameters in a body: a JSON object, or a form; nothing at all means none. Throws `invalid`. */
export function parseBody(body: Buffer | undefined, contentType: string): Fields {
  if (!body || body.length === 0) return NO_FIELDS
  if (!isUtf8(body)) throw invalid('the request body is not UTF-8')
  const first = body.find((byte) => !isSpace(byte))
  if (first === undefined) return NO_FIELDS
  if (contentType.startsWith('application/x-www-form-urlencoded') && first !== OPEN_BRACE && first !== OPEN_BRACKET)
    return form(body)
  requireFewValues(body)
  let parsed: unknown
  try {
    parsed = JSON.parse(body.toString().replace(/^\uFEFF/, ''))
  } catch {
    // The parser's own message quotes the text, which may hold a password.
    throw invalid('the request body is not valid JSON')
  }
  if (!isObject(parsed)) throw invalid('the request body must be a JSON object')
  refuseTraps(parsed)
  return parsed
}

/** Parameters as they stand in a query or form; what is given several times becomes a list. */
export function pairs(search: URLSearchParams): Fields {
  const fields: Record<string, string | string[]> = {}
  for (const [name, value] of search) {
    if (name === '__proto__') throw invalid('the parameter __proto__ is not allowed')
    const before = Object.hasOwn(fields, name) ? fields[name] : undefined
    if (before === undefined) fields[name] = value
    else if (Array.isArray(before)) before.push(value)
    else fields[name] = [before, value]
  }
  return fields
}

function form(body: Buffer): Fields {
  let values = 1
  for (let at = body.indexOf('&'); at >= 0; at = body.indexOf('&', at + 1)) if (++values > MOST_VALUES) throw tooMany()
  return pairs(new URLSearchParams(body.toString()))
}

/** Counts the values of JSON text before it is parsed. */
function requireFewValues(body: Buffer): void {
  let values = 0
  let inText = false
  for (let at = 0; at < body.length; at++) {
    const octet = body[at]
    if (octet === QUOTE) inText = !inText
    else if (inText) at += octet === BACKSLASH ? 1 : 0
    else if (octet === COMMA || octet === OPEN_BRACE || octet === OPEN_BRACKET) values++
    if (values > MOST_VALUES) throw tooMany()
  }
}

function tooMany() {
  return invalid(`the request body holds more than ${MOST_VALUES} values`)
}

/** Refuses what could harm code that copies or walks the fields later: members that replace a prototype, and nesting without end. */
function refuseTraps(root: object): void {
  let level: object[] = [root]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > DEEPEST) throw invalid(`the request body is nested deeper than ${DEEPEST} levels`)
    const next: object[] = []
    for (const value of level) {
      if (Object.hasOwn(value, '__proto__')) throw invalid('the request body must not have a member __proto__')
      for (const item of Object.values(value)) if (typeof item === 'object' && item !== null) next.push(item)
    }
    level = next
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isSpace(byte: number): boolean {
  return byte === 32 || (byte >= 9 && byte <= 13) || byte === 0xef || byte === 0xbb || byte === 0xbf
}
