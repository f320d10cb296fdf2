import { BlockList, isIP } from 'node:net'
import { invalid } from '../../lib/errors.ts'

/** Throws `invalid` naming `field` unless every element is an IPv4 or IPv6 network (`10.0.0.0/8`) or a bare address. */
export function requireCidrs(list: readonly string[], field: string): void {
  for (const text of list)
    if (!parseCidr(text)) throw invalid(`${field}: "${text}" is not an IP address or network such as 10.0.0.0/8`)
}

/** Whether an address lies in one of the networks. An address that is none (a unix socket's) lies in no network. */
export function cidrAllows(list: readonly string[], address: string): boolean {
  const plain = unmapped(address)
  const family = isIP(plain)
  if (family === 0) return false
  const blocks = new BlockList()
  for (const text of list) {
    const cidr = parseCidr(text)
    if (cidr) blocks.addSubnet(cidr.network, cidr.bits, cidr.family)
  }
  return blocks.check(plain, family === 4 ? 'ipv4' : 'ipv6')
}

function parseCidr(text: string): { network: string; bits: number; family: 'ipv4' | 'ipv6' } | undefined {
  const match = /^([0-9A-Fa-f.:]+)(?:\/(\d{1,3}))?$/.exec(text.trim())
  if (!match) return undefined
  const network = match[1] ?? ''
  const version = isIP(network)
  if (version === 0) return undefined
  const most = version === 4 ? 32 : 128
  const bits = match[2] === undefined ? most : Number(match[2])
  return bits <= most ? { network, bits, family: version === 4 ? 'ipv4' : 'ipv6' } : undefined
}

/** A dual-stack socket shows IPv4 peers as `::ffff:a.b.c.d`, and link-local peers with a zone. */
function unmapped(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)
  return mapped?.[1] ?? address.replace(/%.*$/, '')
}
