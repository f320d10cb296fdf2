type State =
  | ('start' | 'head' | 'body' | 'pass')
  | ('size' | 'extension' | 'size-lf' | 'data' | 'data-cr' | 'data-lf')
  | ('trailer-start' | 'trailer' | 'trailer-lf' | 'last-lf')

export interface Piece {
  readonly bytes: Buffer
  /** Whether a request begins with it; else it belongs to the one before. */
  readonly begins: boolean
}

/**
 * Node's HTTP parser knows no method `LIST`. `LINK` is legal, of equal length and used by nobody, so `LIST ` at the start of a request is
 * respelled on its way into the parser, and `decode.ts` takes `LINK` for a list.
 *
 * The filter follows message framing (head, Content-Length, chunks and trailers) only to know where requests start. No other byte is ever
 * changed, added, dropped or reordered; at most two bytes wait for the next packet. Where framing is not beyond doubt it stops filtering and
 * passes everything on as it came: what such a request means is for Node's parser alone to decide.
 */
export class ListVerb {
  #state: State = 'start'
  /** Bytes of `LIST ` seen at the start of this request. */
  #matched = 0
  /** What was held back of a `LIST` split over packets: `S` or `ST`. */
  #held = ''
  /** The head so far, when it is split over packets. */
  #head = ''
  /** Bytes left of a body or chunk. */
  #left = 0
  #sizeDigits = ''

  /**
   * The bytes to give to the parser in place of `chunk`, which is respelled in place where it can be: cut where requests begin, and whole once
   * that cannot be told.
   */
  push(chunk: Buffer): Piece[] {
    if (this.#passes) return [{ bytes: chunk, begins: true }]
    let bytes = chunk
    if (this.#held !== '') {
      // Begin again at the held bytes, as if they had come with this packet.
      bytes = Buffer.concat([Buffer.from(this.#held, 'latin1'), chunk])
      this.#matched = 2
      this.#held = ''
    }
    const pieces: Piece[] = []
    let begins = this.#isBetween
    let from = 0
    let at = 0
    while (at < bytes.length && !this.#passes) {
      if (at > from && this.#isBetween) {
        pieces.push({ bytes: bytes.subarray(from, at), begins })
        begins = true
        from = at
      }
      switch (this.#state) {
        case 'start':
          at = this.#start(bytes, at)
          break
        case 'head':
          at = this.#readHead(bytes, at)
          break
        case 'body':
        case 'data': {
          const skipped = Math.min(this.#left, bytes.length - at)
          at += skipped
          this.#left -= skipped
          if (this.#left === 0) this.#state = this.#state === 'data' ? 'data-cr' : this.#nextRequest()
          break
        }
        default:
          this.#state = this.#afterByte(bytes[at] ?? 0)
          at += 1
      }
    }
    const end = bytes.length - this.#held.length
    // Nearly every packet is one piece as it is.
    const isWhole = from === 0 && end === bytes.length
    if (end > from) pieces.push({ bytes: isWhole ? bytes : bytes.subarray(from, end), begins })
    return pieces
  }

  /** The bytes still held back when the connection ends. */
  end(): Buffer {
    const held = Buffer.from(this.#held, 'latin1')
    this.#held = ''
    this.#state = 'pass'
    return held
  }

  get #passes(): boolean {
    return this.#state === 'pass'
  }

  /** Nothing of the next request has come yet. */
  get #isBetween(): boolean {
    return this.#state === 'start' && this.#matched === 0
  }

  #nextRequest(): State {
    this.#matched = 0
    this.#head = ''
    return 'start'
  }

  #start(bytes: Buffer, from: number): number {
    let at = from
    // The parser skips empty lines between requests.
    while (this.#matched === 0 && (bytes[at] === CR || bytes[at] === LF)) at += 1
    while (at < bytes.length && this.#matched < 5 && bytes[at] === LIST[this.#matched]) {
      at += 1
      this.#matched += 1
    }
    if (this.#matched === 5) {
      bytes[at - 3] = LETTER_N
      bytes[at - 2] = LETTER_K
    } else if (at === bytes.length) {
      if (this.#matched > 2) this.#held = 'ST'.slice(0, this.#matched - 2)
      return at
    }
    this.#state = 'head'
    return at
  }

  #readHead(bytes: Buffer, from: number): number {
    let end: number
    let head: string
    if (this.#head === '') {
      end = bytes.indexOf(BLANK_LINE, from)
      head = end < 0 ? '' : bytes.toString('latin1', from, end + 2)
      if (end < 0) this.#head = bytes.toString('latin1', from)
      else end += 4
    } else {
      const before = this.#head.length
      // The blank line may have begun in an earlier packet.
      this.#head += bytes.toString('latin1', from)
      const found = this.#head.indexOf('\r\n\r\n', Math.max(0, before - 3))
      end = found < 0 ? -1 : from + found + 4 - before
      head = found < 0 ? '' : this.#head.slice(0, found + 2)
    }
    if (end < 0) {
      if (this.#head.length > LONGEST_HEAD) this.#state = 'pass'
      return bytes.length
    }
    this.#head = ''
    this.#state = this.#afterHead(head)
    return end
  }

  /** What follows this head: a body of so many bytes, chunks, or the next request. */
  #afterHead(head: string): State {
    let length: string | undefined
    let coding: string | undefined
    for (const [, name = '', value = ''] of head.matchAll(FRAMING)) {
      const isLength = name.toLowerCase() === 'content-length'
      if ((isLength ? length : coding) !== undefined) return 'pass'
      if (isLength) length = value.trimEnd()
      else coding = value.trimEnd()
    }
    if (UNSURE.test(head)) return 'pass'
    if (coding !== undefined) {
      this.#sizeDigits = ''
      return length === undefined && coding.toLowerCase() === 'chunked' ? 'size' : 'pass'
    }
    if (length === undefined) return this.#nextRequest()
    if (!/^\d{1,15}$/.test(length)) return 'pass'
    this.#left = Number(length)
    return this.#left === 0 ? this.#nextRequest() : 'body'
  }

  /** One byte of what stands around the data of chunks. */
  #afterByte(byte: number): State {
    switch (this.#state) {
      case 'size':
        if (HEX.has(byte) && this.#sizeDigits.length < 8) {
          this.#sizeDigits += String.fromCharCode(byte)
          return 'size'
        }
        if (this.#sizeDigits === '') return 'pass'
        if (byte === CR) return 'size-lf'
        return byte === SEMICOLON ? 'extension' : 'pass'
      case 'extension':
        if (byte === CR) return 'size-lf'
        return byte === LF ? 'pass' : 'extension'
      case 'size-lf':
        if (byte !== LF) return 'pass'
        this.#left = Number.parseInt(this.#sizeDigits, 16)
        this.#sizeDigits = ''
        return this.#left === 0 ? 'trailer-start' : 'data'
      case 'data-cr':
        return byte === CR ? 'data-lf' : 'pass'
      case 'data-lf':
        return byte === LF ? 'size' : 'pass'
      case 'trailer-start':
        return byte === CR ? 'last-lf' : this.#inTrailer(byte)
      case 'trailer':
        return this.#inTrailer(byte)
      case 'trailer-lf':
        return byte === LF ? 'trailer-start' : 'pass'
      case 'last-lf':
        return byte === LF ? this.#nextRequest() : 'pass'
      default:
        return 'pass'
    }
  }

  #inTrailer(byte: number): State {
    if (byte === CR) return 'trailer-lf'
    return byte === LF ? 'pass' : 'trailer'
  }
}

const CR = 13
const LF = 10
const SEMICOLON = 59
const LETTER_N = 78
const LETTER_K = 75
const LIST = Buffer.from('LIST ')
const BLANK_LINE = Buffer.from('\r\n\r\n')
const LONGEST_HEAD = 256 * 1024
const HEX = new Set(Buffer.from('0123456789abcdefABCDEF'))
const FRAMING = /\r\n(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)/gi
// CONNECT; a folded header; a line that ends in only one of CR and LF: parsers differ in how they read these.
const UNSURE = /^CONNECT |\n[ \t]|\r(?!\n)|(?<!\r)\n/
