import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { clientAddress, plainAddress, TrustedNetworks } from './client-address.ts'
import { readHeader } from './proxy-protocol.ts'

const signature = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')

/** A version 2 header: command and family as hex, then its addresses. */
function version2(start: string, addresses: Buffer): Buffer {
  const length = Buffer.alloc(2)
  length.writeUInt16BE(addresses.length)
  return Buffer.concat([signature, Buffer.from(start, 'hex'), length, addresses])
}
const v4 = Buffer.from([198, 51, 100, 7, 127, 0, 0, 1, 1, 2, 3, 4])
const v6 = Buffer.concat([Buffer.from('20010db8000000000000000000000007', 'hex'), Buffer.alloc(20)])
const mapped = Buffer.concat([Buffer.from('00000000000000000000ffffc6336407', 'hex'), Buffer.alloc(20)])

const good: [name: string, header: Buffer, source: string | undefined][] = [
  ['TCP4', Buffer.from('PROXY TCP4 198.51.100.7 10.0.0.1 1 65535\r\n'), '198.51.100.7'],
  ['TCP6', Buffer.from('PROXY TCP6 2001:db8::7 ::1 1 2\r\n'), '2001:db8::7'],
  ['UNKNOWN', Buffer.from('PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n'), undefined],
  ['IPv4', version2('2111', v4), '198.51.100.7'],
  ['IPv4 with extensions', version2('2111', Buffer.concat([v4, Buffer.from('040002abcd', 'hex')])), '198.51.100.7'],
  ['IPv6', version2('2121', v6), '2001:db8:0:0:0:0:0:7'],
  ['IPv4 within IPv6', version2('2121', mapped), '198.51.100.7'],
  ['local', version2('2000', Buffer.alloc(0)), undefined],
  ['a unix socket', version2('2131', Buffer.alloc(216)), undefined],
]

test.each(good)('%s: read whole, incomplete at every cut, whatever follows', (_, header, source) => {
  const want = { kind: 'header', bytes: header.length, ...(source !== undefined && { source }) }
  expect(readHeader(header)).toEqual(want)
  expect(readHeader(Buffer.concat([header, Buffer.from('PROXY TCP4 \r\n')]))).toEqual(want)
  for (let cut = 0; cut < header.length; cut++) expect(readHeader(header.subarray(0, cut)).kind).toBe('incomplete')
})

test.each([
  ['HTTP', Buffer.from('GET / HTTP/1.1\r\n')],
  ['TLS', Buffer.from('160301', 'hex')],
  ['a family that is none', Buffer.from('PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n')],
  ['no port', Buffer.from('PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n')],
  ['a port beyond the last', Buffer.from('PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n')],
  ['no IPv4 address', Buffer.from('PROXY TCP4 999.1.1.1 1.2.3.4 1 2\r\n')],
  ['no IPv6 address', Buffer.from('PROXY TCP6 :::::: ::1 1 2\r\n')],
  ['IPv4 for IPv6', Buffer.from('PROXY TCP6 1.2.3.4 ::1 1 2\r\n')],
  ['an address with a zone', Buffer.from('PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n')],
  ['words too many', Buffer.from('PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n')],
  ['an address that is none', Buffer.from('PROXY TCP4 host 1.2.3.4 1 2\r\n')],
  ['a line without end', Buffer.from(`PROXY TCP4 ${'1'.repeat(200)}`)],
  ['version 3', version2('3111', v4)],
  ['a command that is none', version2('2211', v4)],
  ['addresses too short', version2('2111', v4.subarray(0, 8))],
  ['IPv6 too short', version2('2121', v4)],
  ['a length beyond sense', Buffer.concat([signature, Buffer.from('2111ffff', 'hex')])],
])('%s is invalid', (_, bytes) => {
  expect(readHeader(bytes)).toEqual({ kind: 'invalid' })
})

test('no bytes make it throw or read beyond them', () => {
  const start = fc.constantFrom(Buffer.alloc(0), signature, Buffer.from('PROXY '), Buffer.from('PROXY TCP4 '))
  fc.assert(
    fc.property(start, fc.uint8Array({ maxLength: 60 }), (head, tail) => {
      const bytes = Buffer.concat([head, tail])
      const header = readHeader(bytes)
      return header.kind !== 'header' || header.bytes <= bytes.length
    }),
  )
})

describe('addresses', () => {
  test.each([
    ['192.0.2.1', '192.0.2.1'],
    ['192.0.2.1:80', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['[2001:db8::1]:80', '2001:db8::1'],
    ['[2001:db8::1]', '2001:db8::1'],
    ['fe80::1%eth0', 'fe80::1'],
  ])('%s is %s', (text, address) => {
    expect(plainAddress(text)).toBe(address)
  })

  const trusted = new TrustedNetworks(['10.0.0.0/8', '2001:db8::/32', '192.0.2.1'])
  test.each([
    ['198.51.100.1', '1.1.1.1', '198.51.100.1'],
    ['10.0.0.1', undefined, '10.0.0.1'],
    ['10.0.0.1', '', '10.0.0.1'],
    ['::ffff:10.0.0.1', '1.1.1.1', '1.1.1.1'],
    ['10.0.0.1', '6.6.6.6, 1.1.1.1', '1.1.1.1'],
    ['10.0.0.1', '6.6.6.6, 1.1.1.1, 192.0.2.1, 2001:db8::9', '1.1.1.1'],
    ['10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['10.0.0.1', '1.1.1.1, unknown', '10.0.0.1'],
    ['10.0.0.1', '1.1.1.1,', '10.0.0.1'],
  ])('peer %s with X-Forwarded-For %s is %s', (peer, header, address) => {
    expect(clientAddress(peer, header, trusted)).toBe(address)
  })

  test.each(['10.0.0.0/33', '10.0.0/8', 'proxy.example', '10.0.0.0/8/8', '10.0.0.0/', '::1/129'])(
    '%s is no network',
    (network) => {
      expect(() => new TrustedNetworks([network])).toThrow(/trusted proxies/)
    },
  )
})
