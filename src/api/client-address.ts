import { BlockList, isIP } from 'node:net'
import { invalid } from '../lib/errors.ts'

/** Networks whose word about the client's address is taken. Nobody else's is. */
export class TrustedNetworks {
  readonly #list = new BlockList()
  #size = 0

  /** Throws `invalid` for what is neither an address nor a network such as `10.0.0.0/8`. */
  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address = '', bits, ...rest] = network.split('/')
      const version = isIP(address)
      const longest = version === 6 ? 128 : 32
      const length = bits === undefined ? longest : /^\d{1,3}$/.test(bits) ? Number(bits) : Number.NaN
      if (version === 0 || rest.length > 0 || !(length <= longest))
        throw invalid(`"${network}" in the trusted proxies is no network such as 10.0.0.0/8`)
      this.#list.addSubnet(address, length, version === 6 ? 'ipv6' : 'ipv4')
      this.#size += 1
    }
  }

  has(address: string): boolean {
    const version = this.#size === 0 ? 0 : isIP(address)
    return version !== 0 && this.#list.check(address, version === 6 ? 'ipv6' : 'ipv4')
  }
}

/**
 * Who really asks, behind proxies: the right-most address of `X-Forwarded-For` that is no trusted proxy. Each proxy adds on the right whom
 * it saw, so what stands left of an untrusted address is that address's own claim. Only asked when the peer itself is trusted.
 */
export function clientAddress(peer: string, forwardedFor: string | undefined, trusted: TrustedNetworks): string {
  let address = plainAddress(peer)
  if (forwardedFor === undefined || !trusted.has(address)) return address
  for (const hop of forwardedFor.split(',').reverse()) {
    const next = plainAddress(hop.trim())
    if (isIP(next) === 0) return address
    address = next
    if (!trusted.has(address)) return address
  }
  return address
}

/** An address without port, brackets and zone; IPv4 within IPv6 as IPv4. */
export function plainAddress(text: string): string {
  const bare = /^\[([^\]]+)\](?::\d+)?$/.exec(text)?.[1] ?? /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(text)?.[1] ?? text
  const zoneless = bare.split('%', 1)[0] ?? ''
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(zoneless)?.[1] ?? zoneless
}
