/** One element of BER (X.690) as LDAP uses it: definite lengths, tags of one octet. */
export interface Element {
  readonly tag: number
  readonly body: Buffer
}

/** What was received is no BER, or not what was expected there. */
export class BerError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'BerError'
  }
}

/**
 * Octets from the beginning of `buffer` to the end of its first element; `undefined` while too little of it is there to tell. Throws
 * `BerError` when no element can begin like this, or when it would be longer than `limit`.
 */
export function elementSize(buffer: Buffer, limit: number): number | undefined {
  const first = buffer[1]
  if (first === undefined) return undefined
  if (first < 0x80) return 2 + first
  const octets = first & 0x7f
  if (octets === 0 || octets > 4) throw new BerError('a length that LDAP does not allow')
  if (buffer.length < 2 + octets) return undefined
  const size = 2 + octets + buffer.readUIntBE(2, octets)
  if (size > limit) throw new BerError('a message that is too long')
  return size
}

/** Reads elements one after the other; every length is checked against what there is, so no input makes it run in circles. */
export class BerReader {
  #rest: Buffer
  constructor(body: Buffer) {
    this.#rest = body
  }

  get isAtEnd(): boolean {
    return this.#rest.length === 0
  }

  next(tag?: number): Element {
    const size = elementSize(this.#rest, this.#rest.length)
    const [found, first = 0] = this.#rest
    if (size === undefined || size > this.#rest.length || found === undefined)
      throw new BerError('an element is cut off')
    if (tag !== undefined && found !== tag) throw new BerError(`tag ${found} where ${tag} is expected`)
    const head = first < 0x80 ? 2 : 2 + (first & 0x7f)
    const body = this.#rest.subarray(head, size)
    this.#rest = this.#rest.subarray(size)
    return { tag: found, body }
  }

  /** A reader of the elements inside the next one. */
  inside(tag: number): BerReader {
    return new BerReader(this.next(tag).body)
  }

  octets(tag = 0x04): Buffer {
    return this.next(tag).body
  }

  text(tag = 0x04): string {
    return this.octets(tag).toString()
  }

  integer(tag = 0x02): number {
    const { body } = this.next(tag)
    if (body.length === 0 || body.length > 4) throw new BerError('a number that is too long')
    return body.readIntBE(0, body.length)
  }
}
