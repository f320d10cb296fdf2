import {
  Attribute,
  BerWriter,
  BindRequest,
  Change,
  SearchRequest as LdapSearchRequest,
  ModifyRequest,
  PagedResultsControl,
} from 'ldapts'
import type { Secret } from '../../lib/secret.ts'
import { BerError, BerReader } from './ber.ts'
import type { AttributeChange, DirectorySettings, SearchRequest } from './directory.ts'
import { requireAttribute } from './filter.ts'

/**
 * The messages of LDAP (RFC 4511). ldapts writes the requests; the answers are read here, because its own reader can be made to run in circles
 * by a few wrong octets, drops what follows a message that it does not know, and turns octets into text.
 */

export type Operation = 'bind' | 'search' | 'modify'

export interface FoundEntry {
  readonly dn: string
  readonly attributes: readonly { readonly name: string; readonly values: readonly Buffer[] }[]
}

export type Answer =
  | { readonly is: 'entry'; readonly id: number; readonly entry: FoundEntry }
  /** A referral among the entries: ignored. */
  | { readonly is: 'reference'; readonly id: number }
  /** The last answer to a request, with the cookie of the next page where there is one. */
  | {
      readonly is: Operation | 'extended'
      readonly id: number
      readonly code: number
      readonly cookie: Buffer | undefined
    }

const SEQUENCE = 0x30
const SET = 0x31
const ENUMERATED = 0x0a
const CONTROLS = 0xa0
const ENTRY = 0x64
const REFERENCE = 0x73
const RESULTS: ReadonlyMap<number, Operation | 'extended'> = new Map([
  [0x61, 'bind'],
  [0x65, 'search'],
  [0x67, 'modify'],
  [0x78, 'extended'],
])
const DEREFERENCE = { never: 'never', finding: 'find', searching: 'search', always: 'always' } as const

export function encodeBind(messageId: number, name: string, password: Secret): Buffer {
  return new BindRequest({ messageId, dn: name, password: password.reveal() }).write()
}

/** `page` asks for one page (RFC 2696); its cookie is that of the page before, empty for the first. */
export function encodeSearch(
  messageId: number,
  request: SearchRequest,
  options: {
    readonly timeLimitSeconds: number
    readonly dereferenceAliases: DirectorySettings['dereferenceAliases']
    readonly page: { readonly size: number; readonly cookie: Buffer } | undefined
  },
): Buffer {
  const { page } = options
  return new LdapSearchRequest({
    messageId,
    baseDN: request.base,
    scope: request.scope,
    filter: request.filter.wire,
    attributes: request.attributes.map(requireAttributeOrNone),
    sizeLimit: request.sizeLimit ?? 0,
    timeLimit: options.timeLimitSeconds,
    derefAliases: DEREFERENCE[options.dereferenceAliases],
    ...(page && { controls: [new PagedResultsControl({ value: page })] }),
  }).write()
}

/** One request that replaces the values of all these attributes, or of none. */
export function encodeReplace(messageId: number, dn: string, replacements: readonly AttributeChange[]): Buffer {
  const changes = replacements.map(({ attribute, values }) => {
    const modification = new Attribute({ type: requireAttribute(attribute), values: [...values] })
    return new Change({ operation: 'replace', modification })
  })
  return new ModifyRequest({ messageId, dn, changes }).write()
}

export function encodeUnbind(messageId: number): Buffer {
  const writer = new BerWriter()
  writer.startSequence()
  writer.writeInt(messageId)
  writer.writeByte(0x42)
  writer.writeByte(0)
  writer.endSequence()
  return writer.buffer
}

/** Reads one whole message. Throws `BerError` for what is none, and for kinds that nobody asked for. */
export function decodeAnswer(message: Buffer): Answer {
  const reader = new BerReader(message).inside(SEQUENCE)
  const id = reader.integer()
  const { tag, body } = reader.next()
  const inner = new BerReader(body)
  if (tag === ENTRY) return { is: 'entry', id, entry: readEntry(inner) }
  if (tag === REFERENCE) return { is: 'reference', id }
  const is = RESULTS.get(tag)
  if (is === undefined) throw new BerError(`a message of an unknown kind (${tag})`)
  const code = inner.integer(ENUMERATED)
  return { is, id, code, cookie: reader.isAtEnd ? undefined : readCookie(reader.inside(CONTROLS)) }
}

function readEntry(reader: BerReader): FoundEntry {
  const dn = reader.text()
  const attributes: { name: string; values: Buffer[] }[] = []
  for (const list = reader.inside(SEQUENCE); !list.isAtEnd; ) {
    const attribute = list.inside(SEQUENCE)
    const name = attribute.text()
    const values: Buffer[] = []
    for (const set = attribute.inside(SET); !set.isAtEnd; ) values.push(set.octets())
    attributes.push({ name, values })
  }
  return { dn, attributes }
}

function readCookie(controls: BerReader): Buffer | undefined {
  while (!controls.isAtEnd) {
    const control = controls.inside(SEQUENCE)
    if (control.text() !== PagedResultsControl.type) continue
    while (!control.isAtEnd) {
      const { tag, body } = control.next()
      if (tag !== 0x04) continue
      const value = new BerReader(body).inside(SEQUENCE)
      value.integer()
      return value.octets()
    }
  }
  return undefined
}

/** "1.1" (no attributes), "*" and "+" are requests, not names (RFC 4511, 4.5.1.8). */
function requireAttributeOrNone(attribute: string): string {
  return ['1.1', '*', '+'].includes(attribute) ? attribute : requireAttribute(attribute)
}
