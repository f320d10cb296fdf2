import {
  AndFilter,
  ApproximateFilter,
  EqualityFilter,
  ExtensibleFilter,
  GreaterThanEqualsFilter,
  type Filter as LdapFilter,
  LessThanEqualsFilter,
  NotFilter,
  OrFilter,
  PresenceFilter,
  SubstringFilter,
} from 'ldapts'
import { invalid } from '../../lib/errors.ts'

/**
 * Search filters that cannot be built from unescaped text. A filter is made from attribute and value (`equals`), or parsed from an
 * administrator's text (RFC 4515) whose hex escapes are decoded here, octet by octet: ldapts sends those from `\80` up as wrong bytes.
 */
export class Filter {
  readonly #filter: LdapFilter
  constructor(filter: LdapFilter) {
    this.#filter = filter
  }
  /** For the wire; only the directory door calls it. */
  get wire(): LdapFilter {
    return this.#filter
  }
}

const ATTRIBUTE = /^(?:[a-z][a-z0-9-]*|\d+(?:\.\d+)+)(?:;[a-z0-9-]+)*$/i

/** Throws `invalid` unless this is an attribute description (RFC 4512, 2.5). */
export function requireAttribute(attribute: string): string {
  if (!ATTRIBUTE.test(attribute)) throw invalid(`"${attribute}" is not the name of an attribute`)
  return attribute
}

export function equals(attribute: string, value: string | Buffer): Filter {
  return new Filter(new EqualityFilter({ attribute: requireAttribute(attribute), value }))
}
export function present(attribute: string): Filter {
  return new Filter(new PresenceFilter({ attribute: requireAttribute(attribute) }))
}
export function and(...filters: readonly Filter[]): Filter {
  return new Filter(new AndFilter({ filters: filters.map((filter) => filter.wire) }))
}
export function or(...filters: readonly Filter[]): Filter {
  return new Filter(new OrFilter({ filters: filters.map((filter) => filter.wire) }))
}

/** A value as it may stand in a filter's text: the special characters and NUL as hex (RFC 4515, 3). */
export function escapeFilterValue(value: string): string {
  return value.replace(/[\\*()\0]/g, (char) => `\\${char.charCodeAt(0).toString(16).padStart(2, '0')}`)
}

const DEEPEST = 50

/** Parses a filter's text; throws `invalid` saying where it breaks. Spaces between the parts are allowed. */
export function parseFilter(text: string): Filter {
  let at = 0
  const fail = (what: string) => invalid(`not a search filter: ${what} at position ${at + 1}`)
  const skip = () => {
    while (/\s/.test(text[at] ?? '')) at++
  }

  function filter(depth: number): LdapFilter {
    if (depth > DEEPEST) throw fail('nested too deep')
    skip()
    if (text[at] !== '(') throw fail('"(" expected')
    at++
    skip()
    const found = body(depth)
    skip()
    if (text[at] !== ')') throw fail('")" expected')
    at++
    return found
  }

  function body(depth: number): LdapFilter {
    const operator = text[at]
    if (operator === '&' || operator === '|') {
      at++
      const filters: LdapFilter[] = []
      for (skip(); text[at] === '('; skip()) filters.push(filter(depth + 1))
      if (filters.length === 0) throw fail('a filter expected')
      return operator === '&' ? new AndFilter({ filters }) : new OrFilter({ filters })
    }
    if (operator === '!') {
      at++
      return new NotFilter({ filter: filter(depth + 1) })
    }
    return item()
  }

  function item(): LdapFilter {
    const match = /^([^()=<>~:]*)(:dn)?(?::([A-Za-z0-9.-]+))?(:?=|>=|<=|~=)/.exec(text.slice(at))
    if (!match) throw fail('attribute and operator expected')
    const [head, name = '', dn, rule, operator] = match
    const attribute = name.trim()
    if (attribute !== '' || operator !== ':=')
      if (!ATTRIBUTE.test(attribute)) throw fail('the name of an attribute expected')
    at += head.length
    const end = text.indexOf(')', at)
    const raw = text.slice(at, end < 0 ? text.length : end)
    if (raw.includes('(')) throw fail('")" expected')
    const parts = raw.split('*').map(decode)
    at += raw.length
    const [value = Buffer.alloc(0)] = parts
    if (operator === ':=') {
      if (parts.length > 1) throw fail('"*" is not allowed in an extensible match')
      if (attribute === '' && rule === undefined) throw fail('an attribute or a matching rule expected')
      return new ExtensibleFilter({
        matchType: attribute,
        rule: rule ?? '',
        dnAttributes: dn !== undefined,
        value: utf8(value),
      })
    }
    if (dn !== undefined || rule !== undefined) throw fail('":=" expected after a matching rule')
    if (parts.length > 1) {
      if (operator !== '=') throw fail('"*" is not allowed here')
      if (/^\*+$/.test(raw)) return new PresenceFilter({ attribute })
      return new SubstringFilter({
        attribute,
        initial: utf8(value),
        any: parts
          .slice(1, -1)
          .map(utf8)
          .filter((part) => part !== ''),
        final: utf8(parts.at(-1) ?? Buffer.alloc(0)),
      })
    }
    if (operator === '>=') return new GreaterThanEqualsFilter({ attribute, value: utf8(value) })
    if (operator === '<=') return new LessThanEqualsFilter({ attribute, value: utf8(value) })
    if (operator === '~=') return new ApproximateFilter({ attribute, value: utf8(value) })
    return new EqualityFilter({ attribute, value })
  }

  function decode(raw: string): Buffer {
    const octets: Buffer[] = []
    for (const piece of raw.match(/\\[0-9a-f]{2}|\\|[^\\]+/gi) ?? []) {
      if (piece === '\\') throw fail('"\\" must be followed by two hex digits')
      octets.push(piece.startsWith('\\') ? Buffer.from(piece.slice(1), 'hex') : Buffer.from(piece))
    }
    return Buffer.concat(octets)
  }

  // Only equality can carry octets that are no text; such a value elsewhere is refused rather than sent wrong.
  function utf8(octets: Buffer): string {
    const value = octets.toString('utf8')
    if (!Buffer.from(value).equals(octets)) throw fail('octets that are no text are allowed only in an equality match')
    return value
  }

  const found = filter(0)
  skip()
  if (at < text.length) throw fail('the end expected')
  return new Filter(found)
}
