import { randomBytes, randomInt, randomUUID } from 'node:crypto'

/** The only source of chance; `systemRandom` is cryptographically strong. */
export interface Random {
  bytes(size: number): Buffer
  /** A uniformly distributed integer, at least 0 and below `limit`. */
  integer(limit: number): number
  uuid(): string
}

const POOL_BYTES = 4096
const POOLED_BYTES = 16
let pool = Buffer.alloc(0)
let used = 0

/**
 * Nonces are drawn from a pool: asking the system for a few octets costs as much as for a page of them. Each octet is given out once and
 * forgotten here. Keys are longer and never lie in the pool.
 */
function fewBytes(size: number): Buffer {
  if (used + size > pool.length) {
    pool = randomBytes(POOL_BYTES)
    used = 0
  }
  const taken = Buffer.from(pool.subarray(used, used + size))
  pool.fill(0, used, used + size)
  used += size
  return taken
}

export const systemRandom: Random = {
  bytes: (size) => (size <= POOLED_BYTES ? fewBytes(size) : randomBytes(size)),
  integer: (limit) => randomInt(limit),
  uuid: () => randomUUID(),
}

export const BASE62 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/** `length` characters drawn uniformly from `alphabet` (base62 by default). */
export function randomText(random: Random, length: number, alphabet = BASE62): string {
  let text = ''
  for (let i = 0; i < length; i++) text += alphabet[random.integer(alphabet.length)]
  return text
}
