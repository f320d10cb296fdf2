import { invalid } from '../../lib/errors.ts'

/**
 * A small reader of HCL (comments, blocks with labels, attributes, lists, objects, quoted strings) which reads JSON too: an object may
 * use `:` for `=` and may have commas between its members. Nothing is lost on the way: members keep their order and repeat as written.
 * Interpolation is not evaluated, heredocs are not read. Throws `invalid` with the line; size and depth are bounded.
 */
export type HclValue = string | number | boolean | null | readonly HclValue[] | HclObject

export interface HclObject {
  readonly members: readonly HclMember[]
}

/** `key = value`, `key { … }` or `key "label" { … }`. */
export interface HclMember {
  readonly key: string
  readonly labels: readonly string[]
  readonly value: HclValue
  readonly line: number
}

const LONGEST_TEXT = 256 * 1024
const DEEPEST = 16

/** Tells an object from lists and plain values. */
export function isHclObject(value: HclValue): value is HclObject {
  return typeof value === 'object' && value !== null && 'members' in value
}

/** Reads a whole document; `what` names it in errors. */
export function parseHcl(text: string, what: string): HclObject {
  if (text.length > LONGEST_TEXT) throw invalid(`${what} is longer than ${LONGEST_TEXT / 1024} KiB`)
  const reader = new Reader(text, what)
  const first = reader.peek()
  const document = first.kind === '{' ? reader.braced(1) : { members: reader.members('end', 1) }
  reader.expect('end')
  return document
}

type Punctuation = '{' | '}' | '[' | ']' | '=' | ':' | ','
type Token =
  | { readonly kind: 'string' | 'word'; readonly text: string; readonly line: number }
  | { readonly kind: 'number'; readonly value: number; readonly line: number }
  | { readonly kind: Punctuation | 'end'; readonly line: number }

const WORD = /[\p{L}_][\p{L}\p{N}_.-]*/uy
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\p{L}\p{N}_.])/uy
const PLAIN = /[^"\\\n]+/y

class Reader {
  readonly #text: string
  readonly #what: string
  #at = 0
  #line = 1
  #next: Token | undefined

  constructor(text: string, what: string) {
    this.#text = text
    this.#what = what
  }

  peek(): Token {
    this.#next ??= this.#scan()
    return this.#next
  }

  take(): Token {
    const token = this.peek()
    this.#next = undefined
    return token
  }

  expect(kind: Punctuation | 'end'): void {
    const token = this.take()
    if (token.kind !== kind) throw this.#fault(token.line, `expected ${name(kind)}, found ${shown(token)}`)
  }

  braced(depth: number): HclObject {
    if (depth > DEEPEST) throw this.#fault(this.peek().line, `nested deeper than ${DEEPEST} levels`)
    this.expect('{')
    const members = this.members('}', depth)
    this.expect('}')
    return { members }
  }

  members(end: '}' | 'end', depth: number): HclMember[] {
    const members: HclMember[] = []
    while (this.peek().kind !== end) {
      members.push(this.#member(depth))
      if (this.peek().kind === ',') this.take()
    }
    return members
  }

  #member(depth: number): HclMember {
    const key = this.take()
    if (key.kind !== 'word' && key.kind !== 'string')
      throw this.#fault(key.line, `expected a name, found ${shown(key)}`)
    const labels: string[] = []
    for (;;) {
      const token = this.peek()
      if (token.kind === '{') return { key: key.text, labels, value: this.braced(depth + 1), line: key.line }
      if ((token.kind === '=' || token.kind === ':') && labels.length === 0) {
        this.take()
        return { key: key.text, labels, value: this.#value(depth + 1), line: key.line }
      }
      if ((token.kind !== 'string' && token.kind !== 'word') || labels.length >= DEEPEST)
        throw this.#fault(token.line, `expected "=" or "{" after "${key.text}", found ${shown(token)}`)
      this.take()
      labels.push(token.text)
    }
  }

  #value(depth: number): HclValue {
    const token = this.peek()
    switch (token.kind) {
      case '{':
        return this.braced(depth)
      case '[':
        return this.#list(depth)
      case 'string':
        this.take()
        return token.text
      case 'number':
        this.take()
        return token.value
      case 'word':
        this.take()
        if (token.text === 'true') return true
        if (token.text === 'false') return false
        if (token.text === 'null') return null
        throw this.#fault(token.line, `the text ${token.text} must stand in quotes`)
      default:
        throw this.#fault(token.line, `expected a value, found ${shown(token)}`)
    }
  }

  #list(depth: number): HclValue[] {
    if (depth > DEEPEST) throw this.#fault(this.peek().line, `nested deeper than ${DEEPEST} levels`)
    this.expect('[')
    const items: HclValue[] = []
    while (this.peek().kind !== ']') {
      items.push(this.#value(depth + 1))
      if (this.peek().kind === ',') this.take()
      else break
    }
    this.expect(']')
    return items
  }

  #scan(): Token {
    this.#skipBlank()
    const line = this.#line
    const char = this.#text[this.#at]
    if (char === undefined) return { kind: 'end', line }
    switch (char) {
      case '{':
      case '}':
      case '[':
      case ']':
      case '=':
      case ':':
      case ',':
        this.#at += 1
        return { kind: char, line }
      case '"':
        return { kind: 'string', text: this.#quoted(), line }
    }
    const number = this.#match(NUMBER)
    if (number !== undefined) return { kind: 'number', value: Number(number), line }
    const word = this.#match(WORD)
    if (word !== undefined) return { kind: 'word', text: word, line }
    throw this.#fault(line, `unexpected character ${JSON.stringify(char)}`)
  }

  #skipBlank(): void {
    for (;;) {
      const char = this.#text[this.#at]
      if (char === '\n') this.#line += 1
      if (char === '\n' || char === ' ' || char === '\t' || char === '\r' || (char === '\u{feff}' && this.#at === 0)) {
        this.#at += 1
      } else if (char === '#' || this.#text.startsWith('//', this.#at)) {
        const end = this.#text.indexOf('\n', this.#at)
        this.#at = end < 0 ? this.#text.length : end
      } else if (this.#text.startsWith('/*', this.#at)) {
        const end = this.#text.indexOf('*/', this.#at + 2)
        if (end < 0) throw this.#fault(this.#line, 'a comment is not closed')
        this.#line += this.#text.slice(this.#at, end).split('\n').length - 1
        this.#at = end + 2
      } else {
        return
      }
    }
  }

  #quoted(): string {
    const line = this.#line
    this.#at += 1
    let text = ''
    for (;;) {
      text += this.#match(PLAIN) ?? ''
      const char = this.#text[this.#at]
      if (char === undefined || char === '\n') throw this.#fault(line, 'a quoted text is not closed')
      this.#at += 1
      if (char === '"') return text
      text += this.#escape(line)
    }
  }

  #escape(line: number): string {
    const char = this.#text[this.#at] ?? ''
    this.#at += 1
    const simple = ESCAPES.get(char)
    if (simple !== undefined) return simple
    const size = char === 'u' ? 4 : char === 'U' ? 8 : 0
    const digits = this.#text.slice(this.#at, this.#at + size)
    const point = size > 0 && new RegExp(`^[0-9A-Fa-f]{${size}}$`).test(digits) ? Number.parseInt(digits, 16) : Infinity
    if (point > 0x10ffff) throw this.#fault(line, `unknown escape "\\${char}" in a quoted text`)
    this.#at += size
    return String.fromCodePoint(point)
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)?.[0]
    if (found !== undefined) this.#at += found.length
    return found
  }

  #fault(line: number, why: string) {
    return invalid(`${this.#what}, line ${line}: ${why}`)
  }
}

const ESCAPES = new Map([
  ['n', '\n'],
  ['t', '\t'],
  ['r', '\r'],
  ['b', '\b'],
  ['f', '\f'],
  ['"', '"'],
  ['\\', '\\'],
  ['/', '/'],
])

function name(kind: Punctuation | 'end'): string {
  return kind === 'end' ? 'the end' : `"${kind}"`
}

function shown(token: Token): string {
  switch (token.kind) {
    case 'string':
      return 'a quoted text'
    case 'word':
      return `"${token.text.slice(0, 40)}"`
    case 'number':
      return `the number ${token.value}`
    default:
      return name(token.kind)
  }
}
