import { Secret } from '../../lib/secret.ts'

/**
 * What of a body, an answer or a message stands in the audit log: its shape, with a keyed hash for each text, each number that was given (it
 * may be a password as well) and each name that nobody knows.
 *
 * Bodies come before it is known who sends them, and a hash costs far more than the octet it is made of. So what is larger than a request has
 * to be stands there as one hash over all of it, and its size.
 */
export type Hash = (text: string) => string

const MOST_VALUES = 1_000
const MOST_CHARACTERS = 65_536
const LONGEST_MESSAGE = 4_096
const SHORTEST_QUOTE = 4

/** Fields as they came; `known` are the names that may stand as they are. */
export function recordedFields(fields: object, known: readonly string[], hash: Hash): object {
  const names = new Set(known)
  return recorded(fields, {
    hash,
    name: (name) => (names.has(name) ? name : hash(name)),
    number: (value) => hash(String(value)),
  })
}

/** An answer: its names and numbers are our own. */
export function recordedAnswer(data: object, hash: Hash): object {
  return recorded(data, { hash, name: (name) => name, number: (value) => value })
}

/** A message may quote what it refuses; here only its hash may stand. */
export function recordedMessage(message: string, fields: object, hash: Hash): string {
  const texts = textsIn(fields)
  if (!texts || message.length > LONGEST_MESSAGE) return hash(message)
  const spellings = texts
    .flatMap((text) => [text, ...text.split(',').map((item) => item.trim())])
    .flatMap((text) => [text, text.toLowerCase()])
  const quoted = [...new Set(spellings)].filter((text) => text.length >= SHORTEST_QUOTE && message.includes(text))
  if (quoted.length === 0) return message
  // All at once, the longest first: a hash must not be taken for a quotation.
  const pattern = quoted.sort((a, b) => b.length - a.length).map((text) => RegExp.escape(text))
  return message.replaceAll(new RegExp(pattern.join('|'), 'g'), hash)
}

interface Spelling {
  readonly hash: Hash
  readonly name: (name: string) => string
  readonly number: (value: number) => unknown
}

function recorded(value: object, how: Spelling): object {
  if (textsIn(value)) return { data: hashed(value, how) }
  // A `Secret` stands in it as asterisks.
  const text = JSON.stringify(value)
  return { data: how.hash(text), data_size: text.length }
}

function hashed(value: unknown, how: Spelling): unknown {
  if (value instanceof Secret) return how.hash(value.reveal())
  if (typeof value === 'string') return how.hash(value)
  if (typeof value === 'number') return how.number(value)
  if (typeof value !== 'object' || value === null || value instanceof Date) return value
  if (Array.isArray(value)) return value.map((item) => hashed(item, how))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [how.name(name), hashed(item, how)]))
}

/** All texts in a value; undefined when it is too large, which is found out without looking at the rest. */
function textsIn(root: object): string[] | undefined {
  const texts: string[] = []
  let values = 0
  let characters = 0
  const fits = (value: unknown): boolean => {
    const plain = value instanceof Secret ? value.reveal() : value
    values += 1
    if (typeof plain === 'string') {
      texts.push(plain)
      characters += plain.length
    }
    if (values > MOST_VALUES || characters > MOST_CHARACTERS) return false
    if (typeof plain !== 'object' || plain === null) return true
    if (Array.isArray(plain)) return plain.every(fits)
    return Object.entries(plain).every(([name, item]) => {
      characters += name.length
      return fits(item)
    })
  }
  return fits(root) ? texts : undefined
}
