import { createCipheriv, createDecipheriv, type KeyObject } from 'node:crypto'
import type { Random } from '../../lib/random.ts'

const NONCE_BYTES = 12
const TAG_BYTES = 16

/** AES-256-GCM as nonce, ciphertext, tag; `context` is authenticated with it and must be the same to decrypt. */
export function encrypt(key: KeyObject, context: string, plain: Uint8Array, random: Random): Buffer {
  const nonce = random.bytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES }).setAAD(Buffer.from(context))
  return Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
}

/** Throws a plain `Error` when key, context or any octet is not as it was. */
export function decrypt(key: KeyObject, context: string, sealed: Uint8Array): Buffer {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) throw new Error('the ciphertext is too short')
  const nonce = sealed.subarray(0, NONCE_BYTES)
  const tag = sealed.subarray(sealed.length - TAG_BYTES)
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.from(context)).setAuthTag(tag)
  return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, sealed.length - TAG_BYTES)), decipher.final()])
}
