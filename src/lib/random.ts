import { randomBytes, randomInt, randomUUID } from 'node:crypto'

/** The only source of chance; `systemRandom` is cryptographically strong. */
export interface Random {
  bytes(size: number): Buffer
  /** A uniformly distributed integer, at least 0 and below `limit`. */
  integer(limit: number): number
  uuid(): string
}

export const systemRandom: Random = {
  bytes: (size) => randomBytes(size),
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
