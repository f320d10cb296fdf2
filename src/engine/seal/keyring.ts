/**
 * The keys of a store: data keys, each with a number, the last one sealing what is written from now on, and one key for hashes. The
 * keyring stands in the store as the only record that the barrier does not seal; the seal wraps it.
 *
 * Opening a store with the wrong seal key changes nothing. Whoever makes the keyring in an empty store first, wins.
 */
import { createHmac, createSecretKey, type KeyObject } from 'node:crypto'
import * as z from 'zod'
import { AppError, invalid, unavailable } from '../../lib/errors.ts'
import { type Random, systemRandom } from '../../lib/random.ts'
import { type StorageDriver, VersionConflict } from '../storage/driver.ts'
import type { Barrier } from './barrier.ts'
import { decrypt, encrypt } from './cipher.ts'
import type { Seal } from './seal.ts'

/** The only record that the barrier does not seal. */
export const KEYRING = 'core/keyring'
const KEY_BYTES = 32
const STORE_DAMAGED = 'store-damaged'
/** First octet of a sealed value; then the data key's number (4 octets, big endian), nonce, ciphertext, tag. */
const FORMAT = 1
const HEAD_BYTES = 5

const secretKey = z.base64().transform((text) => createSecretKey(Buffer.from(text, 'base64')))
const keyringSchema = z.object({
  data: z.array(z.object({ id: z.int().min(1).max(0xffffffff), key: secretKey })).min(1),
  hash: secretKey,
})
type Keyring = z.output<typeof keyringSchema>

/**
 * Reads the keyring of a store, making one in an empty store, and returns the barrier it gives. Throws `invalid` when the seal key is
 * another one or the store has records but no keyring.
 */
export async function openBarrier(driver: StorageDriver, seal: Seal, random: Random = systemRandom): Promise<Barrier> {
  const wrapped = (await driver.get(KEYRING))?.value ?? (await createKeyring(driver, seal, random))
  const plain = await seal.unwrap(wrapped)
  return createBarrier(keyringSchema.parse(JSON.parse(Buffer.from(plain).toString('utf8'))), random)
}

async function createKeyring(driver: StorageDriver, seal: Seal, random: Random): Promise<Uint8Array> {
  const isEmpty = (await driver.list('', { limit: 1 })).length === 0 && (await driver.events(0, 1)).last === 0
  if (!isEmpty)
    throw invalid('the store has no keyring though it is not empty; restore a backup', { reason: STORE_DAMAGED })
  const newKey = () => random.bytes(KEY_BYTES).toString('base64')
  const keyring: z.input<typeof keyringSchema> = { data: [{ id: 1, key: newKey() }], hash: newKey() }
  const value = await seal.wrap(Buffer.from(JSON.stringify(keyring)))
  try {
    await driver.commit([{ type: 'put', key: KEYRING, value, expected: 0 }])
    return value
  } catch (error) {
    const madeByOther = error instanceof VersionConflict ? await driver.get(KEYRING) : undefined
    if (!madeByOther) throw error
    return madeByOther.value
  }
}

/** Whether an error says that something in the store is not as it was written. */
export function isDamage(error: unknown): error is AppError {
  return error instanceof AppError && error.reason === STORE_DAMAGED
}

function createBarrier(keyring: Keyring, random: Random): Barrier {
  const keys = new Map<number, KeyObject>(keyring.data.map(({ id, key }) => [id, key]))
  const current = keyring.data.at(-1)
  if (!current) throw new Error('the keyring holds no data key')
  const head = Buffer.alloc(HEAD_BYTES)
  head[0] = FORMAT
  head.writeUInt32BE(current.id, 1)

  return {
    seal: (key, plain) => Buffer.concat([head, encrypt(current.key, key, plain, random)]),
    open(key, sealed) {
      try {
        const octets = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength)
        if (octets.length < HEAD_BYTES || octets[0] !== FORMAT) throw new Error('its format is unknown')
        const dataKey = keys.get(octets.readUInt32BE(1))
        if (!dataKey) throw new Error('its data key is not in the keyring')
        return decrypt(dataKey, key, octets.subarray(HEAD_BYTES))
      } catch (cause) {
        const message = `the stored value of ${key} does not open: it is damaged or was moved there; restore a backup`
        throw unavailable(message, { cause, reason: STORE_DAMAGED })
      }
    },
    // No purpose holds a NUL, so no two pairs of purpose and text give the same input.
    hash: (purpose, text) => createHmac('sha256', keyring.hash).update(`${purpose}\0${text}`).digest('hex'),
  }
}
