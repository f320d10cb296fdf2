import fc from 'fast-check'
import { expect, test } from 'vitest'
import { ListVerb, type Piece } from './list-verb.ts'

/** What the parser is given when `text` arrives in pieces cut at `cuts`. */
function filtered(text: string, cuts: readonly number[] = []): string {
  const bytes = Buffer.from(text, 'latin1')
  const verb = new ListVerb()
  let given = ''
  let from = 0
  for (const cut of [...cuts, bytes.length].sort((a, b) => a - b)) {
    given += joined(verb.push(Buffer.from(bytes.subarray(from, cut))))
    from = cut
  }
  return given + verb.end().toString('latin1')
}

function joined(pieces: readonly Piece[]): string {
  return pieces.map(({ bytes }) => bytes.toString('latin1')).join('')
}

const BODY = 'LIST /v1/x HTTP/1.1\r\n\r\nLIST y\r\nLIST '
const list = 'LIST /v1/ldap/static-role HTTP/1.1\r\nHost: a\r\n\r\n'
const get = 'GET /v1/a?b=LIST%20 HTTP/1.1\r\nHost: a\r\nX-Note: LIST of\r\n\r\n'
const sized = `PUT /v1/a HTTP/1.1\r\nHost: a\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`
const listSized = `LIST /v1/a HTTP/1.1\r\ncontent-length:${BODY.length}\r\nHost: a\r\n\r\n${BODY}`
const empty = 'POST /v1/a HTTP/1.1\r\nContent-Length: 0\r\n\r\n'
const chunk = `${BODY.length.toString(16)};note="LIST "\r\n${BODY}\r\n`
const chunked = `POST /v1/a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n${chunk}${chunk}0\r\n\r\n`
const trailers = `POST /v1/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}0\r\nLIST : x\r\nLIST: b\r\n\r\n`

const stories: Record<string, string[]> = {
  'one list': [list],
  'keep-alive': [list, get, list],
  'sized bodies': [sized, list, listSized, list, empty, list],
  'chunked bodies': [chunked, list, trailers, list],
  'empty lines between requests': [list, '\r\n', list, '\r\n\r\n', get, list],
}

for (const [name, requests] of Object.entries(stories)) {
  const text = requests.join('')
  const want = requests.map((request) => request.replace(/^LIST /, 'LINK ')).join('')

  test(`${name}: whole, and split at every position`, () => {
    expect(filtered(text)).toBe(want)
    for (let cut = 0; cut <= text.length; cut++) expect(filtered(text, [cut]), `cut at ${cut}`).toBe(want)
  })

  test(`${name}: byte by byte, and in chance pieces`, () => {
    expect(
      filtered(
        text,
        [...text].map((_, i) => i),
      ),
    ).toBe(want)
    fc.assert(
      fc.property(fc.array(fc.nat(text.length), { maxLength: 12 }), (cuts) => filtered(text, cuts) === want),
      { numRuns: 300 },
    )
  })
}

test('a packet is cut where requests begin, wherever it begins itself', () => {
  const requests = [list, sized, chunked, get, empty, trailers, listSized, list]
  const text = requests.join('')
  const starts = requests.map((_, i) => requests.slice(0, i).join('').length)
  for (let cut = 0; cut < text.length; cut++) {
    const verb = new ListVerb()
    const pieces = [text.slice(0, cut), text.slice(cut)].flatMap((part) => verb.push(Buffer.from(part, 'latin1')))
    let at = 0
    const begun: number[] = []
    for (const { bytes, begins } of pieces) {
      if (begins) begun.push(at)
      at += bytes.length
    }
    expect(begun, `cut at ${cut}`).toEqual(starts)
  }
})

test.each([
  ['a method that only begins like LIST', 'LISTEN /v1/a HTTP/1.1\r\n\r\n'],
  ['LIST without a space', 'LIST\r\n'],
  ['a lower-case method', 'list /v1/a HTTP/1.1\r\n\r\n'],
  ['an end within the word', 'LIS'],
  ['an end after the word', 'LIST'],
  ['LISK', 'LISK /v1/a HTTP/1.1\r\n\r\n'],
])('%s stays as it is, however it is cut', (_, text) => {
  for (let cut = 0; cut <= text.length; cut++) expect(filtered(text, [cut])).toBe(text)
})

test.each([
  [
    'both length and chunks',
    `POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${list}`,
  ],
  ['two lengths', `POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd${list}`],
  ['a signed length', `POST / HTTP/1.1\r\nContent-Length: +4\r\n\r\nabcd${list}`],
  ['a coding before chunked', `POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n${list}`],
  ['a bad chunk size', `POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n${list}`],
  ['an endless chunk size', `POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000\r\n\r\n${list}`],
  ['a chunk longer than it said', `POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n${list}`],
  ['a folded header', `POST / HTTP/1.1\r\nContent-Length:\r\n 4\r\n\r\nabcd${list}`],
  ['a bare line feed', `POST / HTTP/1.1\nContent-Length: 4\r\n\r\nabcd${list}`],
  ['CONNECT', `CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n${list}`],
])('%s: nothing is changed from there on', (_, text) => {
  for (let cut = 0; cut <= text.length; cut++) expect(filtered(text, [cut])).toBe(text)
})

test('no byte but the two letters ever changes, whatever comes', () => {
  const piece = fc.constantFrom(
    list,
    sized,
    chunked,
    'LIST ',
    '\r\n',
    '\r\n\r\n',
    'Content-Length: 3\r\n',
    'abc',
    '0\r\n',
  )
  fc.assert(
    fc.property(
      fc.array(fc.oneof(piece, fc.string({ maxLength: 8 })), { maxLength: 20 }),
      fc.array(fc.nat(400)),
      (pieces, at) => {
        const text = pieces.join('').replace(/[^\0-\xff]/gu, '?')
        const cuts = at.filter((cut) => cut <= text.length)
        const given = filtered(text, cuts)
        return given.replaceAll('LINK ', 'LIST ') === text.replaceAll('LINK ', 'LIST ') && given === filtered(text)
      },
    ),
    { numRuns: 500 },
  )
})
