import { invalid } from '../../lib/errors.ts'

/** Distinguished names as strings (RFC 4514): taken apart, compared RDN by RDN, and built with nothing unescaped. */

/** One attribute of an RDN: type in lower case (the short name where it has several), value decoded; octets that are no text stay `#hex`. */
export interface Ava {
  readonly type: string
  readonly value: string
}
/** The RDNs of a name, the entry's own first; each has one or more attributes. */
export type ParsedDn = readonly (readonly Ava[])[]

const TYPE = /^(?:oid\.)?([a-z][a-z0-9-]*|\d+(?:\.\d+)*)$/i
const HEX = /^[0-9a-f]{2}$/i
const PLAIN = /[^\\",;+<>]*(?=[,;+]|$)/y

// Spellings of the types that stand in names (RFC 4519, RFC 4524): whoever writes one means the other.
const SAME_TYPE: ReadonlyMap<string, string> = new Map([
  ['2.5.4.3', 'cn'],
  ['commonname', 'cn'],
  ['2.5.4.4', 'sn'],
  ['surname', 'sn'],
  ['2.5.4.6', 'c'],
  ['countryname', 'c'],
  ['2.5.4.7', 'l'],
  ['localityname', 'l'],
  ['2.5.4.8', 'st'],
  ['stateorprovincename', 'st'],
  ['2.5.4.9', 'street'],
  ['streetaddress', 'street'],
  ['2.5.4.10', 'o'],
  ['organizationname', 'o'],
  ['2.5.4.11', 'ou'],
  ['organizationalunitname', 'ou'],
  ['0.9.2342.19200300.100.1.1', 'uid'],
  ['userid', 'uid'],
  ['0.9.2342.19200300.100.1.25', 'dc'],
  ['domaincomponent', 'dc'],
])

/** Takes a DN apart; throws `invalid` when it is none. The empty DN has no RDNs. */
export function parseDn(dn: string): ParsedDn {
  if (dn.trim() === '') return []
  const rdns: Ava[][] = [[]]
  let at = 0
  for (;;) {
    const equals = dn.indexOf('=', at)
    const type = TYPE.exec(dn.slice(at, equals < 0 ? undefined : equals).trim())?.[1]
    if (equals < 0 || type === undefined) throw invalid(`"${dn}" is not a distinguished name`)
    const { value, end } = readValue(dn, equals + 1)
    const name = type.toLowerCase()
    rdns.at(-1)?.push({ type: SAME_TYPE.get(name) ?? name, value })
    if (end >= dn.length) return rdns
    if (dn[end] !== '+') rdns.push([])
    at = end + 1
  }
}

function readValue(dn: string, start: number): { value: string; end: number } {
  let at = start
  while (dn[at] === ' ') at++
  const octets: number[] = []
  const bad = () => invalid(`"${dn}" is not a distinguished name`)
  if (dn[at] === '#') {
    const hex = /^#((?:[0-9a-f]{2})+) *(?=[,;+]|$)/i.exec(dn.slice(at))
    if (!hex?.[1]) throw bad()
    return { value: textOf(fromBer(Buffer.from(hex[1], 'hex'))), end: at + hex[0].length }
  }
  // Nearly every value needs no decoding.
  PLAIN.lastIndex = at
  const plain = PLAIN.exec(dn)?.[0]
  if (plain !== undefined) return { value: plain.replace(/ +$/, '').toWellFormed(), end: at + plain.length }
  const quoted = dn[at] === '"'
  if (quoted) at++
  // Spaces at the end belong to the value only where they are escaped.
  let kept = 0
  for (; at < dn.length; ) {
    const char = String.fromCodePoint(dn.codePointAt(at) ?? 0)
    if (char === '\\') {
      const pair = dn.slice(at + 1, at + 3)
      if (HEX.test(pair)) {
        octets.push(Number.parseInt(pair, 16))
        at += 3
      } else {
        const next = dn.codePointAt(at + 1)
        if (next === undefined) throw bad()
        const literal = String.fromCodePoint(next)
        octets.push(...Buffer.from(literal))
        at += 1 + literal.length
      }
      kept = octets.length
      continue
    }
    if (quoted && char === '"') {
      at++
      while (dn[at] === ' ') at++
      if (at < dn.length && !',;+'.includes(dn[at] ?? '')) throw bad()
      return { value: textOf(Buffer.from(octets)), end: at }
    }
    if (!quoted && ',;+'.includes(char)) break
    if (!quoted && '"<>'.includes(char)) throw bad()
    octets.push(...Buffer.from(char))
    if (quoted || char !== ' ') kept = octets.length
    at += char.length
  }
  if (quoted) throw bad()
  return { value: textOf(Buffer.from(octets.slice(0, kept))), end: at }
}

/** Octets as text; what is no text as hex, behind a mark that no text of a directory begins with, so that two such values stay apart. */
function textOf(octets: Buffer): string {
  const text = octets.toString('utf8')
  return Buffer.from(text).equals(octets) ? text : `\0#${octets.toString('hex')}`
}

/** What a string type in BER holds (RFC 4514, 2.4); other types stay as they are. */
function fromBer(octets: Buffer): Buffer {
  const [tag = 0, length] = octets
  const isText = [0x04, 0x0c, 0x13, 0x16].includes(tag)
  return isText && length !== undefined && length < 0x80 && length === octets.length - 2 ? octets.subarray(2) : octets
}

/**
 * A form in which two spellings of one name are equal: types and values in lower case, inner spaces single, the attributes of an RDN sorted.
 * For comparing only: it is not sent to a directory.
 */
export function normalizeDn(dn: string): string {
  return parseDn(dn).map(normalizeRdn).join(',')
}

function normalizeRdn(rdn: readonly Ava[]): string {
  return rdn
    .map(({ type, value }) => `${type}=${escapeDnValue(foldValue(value))}`)
    .sort()
    .join('+')
}

/** A form in which two spellings of one value are equal to most directories (RFC 4518): case, compatible characters, spaces. */
export function foldValue(value: string): string {
  return value.normalize('NFKC').toLowerCase().trim().replace(/\s+/g, ' ')
}

/** True when the entry is the base or lies below it, compared RDN by RDN. */
export function isBelow(dn: string, base: string): boolean {
  const [name, root] = [parseDn(dn).map(normalizeRdn), parseDn(base).map(normalizeRdn)]
  return root.length <= name.length && root.every((rdn, i) => rdn === name[name.length - root.length + i])
}

/** A value as it may stand in a DN or a bind name (RFC 4514, 2.4); control octets and what is not ASCII as hex. */
export function escapeDnValue(value: string): string {
  let text = ''
  const chars = [...value]
  chars.forEach((char, i) => {
    const edge = (char === ' ' && (i === 0 || i === chars.length - 1)) || (char === '#' && i === 0)
    const code = char.codePointAt(0) ?? 0
    if (edge || '"+,;<>\\='.includes(char)) text += `\\${char}`
    else if (code < 0x20 || code > 0x7e)
      for (const octet of Buffer.from(char)) text += `\\${octet.toString(16).padStart(2, '0')}`
    else text += char
  })
  return text
}

/** The first CN of a name, `undefined` where there is none or it is no DN. */
export function firstCn(dn: string): string | undefined {
  try {
    return parseDn(dn)
      .flat()
      .find(({ type }) => type === 'cn')?.value
  } catch {
    return undefined
  }
}

/** The part of a name made of domain components, the whole name's root: `dc=corp,dc=example`; empty where it has none. */
export function parentSuffix(dn: string): string {
  const rdns = parseDn(dn)
  const first = rdns.findIndex((rdn) => rdn.every(({ type }) => type === 'dc'))
  return first < 0 ? '' : rdns.slice(first).map(normalizeRdn).join(',')
}

/** Whether the text is a DN; the empty one is. */
export function isDn(text: string): boolean {
  try {
    parseDn(text)
    return true
  } catch {
    return false
  }
}
