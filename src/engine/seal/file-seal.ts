import { createSecretKey, type KeyObject } from 'node:crypto'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { invalid } from '../../lib/errors.ts'
import { type Random, systemRandom } from '../../lib/random.ts'
import { ensureDirectory, errnoOf, fileFailure, publishFile } from '../storage/files.ts'
import { decrypt, encrypt } from './cipher.ts'
import type { Seal } from './seal.ts'

const KEY_BYTES = 32
const FORMAT = 1
const CONTEXT = 'keyturn keyring'

/**
 * The seal that is a key in a file: 32 random octets as base64 text. `createIfMissing` makes it (0600) when absent; an existing file is
 * never written. Throws `invalid` when it is absent or holds something else.
 */
export function openFileSeal(
  file: string,
  { createIfMissing = false, random = systemRandom }: { createIfMissing?: boolean; random?: Random } = {},
): Seal {
  if (createIfMissing) createKeyFile(file, random)
  const key = readKeyFile(file)
  return {
    async wrap(plain) {
      return Buffer.concat([Buffer.of(FORMAT), encrypt(key, CONTEXT, plain, random)])
    },
    async unwrap(wrapped) {
      try {
        if (wrapped[0] !== FORMAT) throw new Error(`unknown format ${wrapped[0]} of the wrapped keyring`)
        return decrypt(key, CONTEXT, wrapped.subarray(1))
      } catch (cause) {
        throw invalid(
          'the seal key does not open this store: it is the key of another store, or the keyring is damaged; nothing was changed',
          { cause, reason: 'wrong-seal-key' },
        )
      }
    },
  }
}

function createKeyFile(file: string, random: Random): void {
  if (existsSync(file)) return
  ensureDirectory(dirname(file))
  // Half a key, of a start that was killed, would be refused at every later one: it gets its name when it is whole and on the disk.
  const fresh = `${file}.${random.uuid()}`
  try {
    writeFileSync(fresh, `${random.bytes(KEY_BYTES).toString('base64')}\n`, { flag: 'wx', mode: 0o600 })
    publishFile(fresh, file)
  } catch (error) {
    // Another start may have been faster.
    if (!existsSync(file)) throw fileFailure(error, 'write the seal key', file)
  } finally {
    rmSync(fresh, { force: true })
  }
}

function readKeyFile(file: string): KeyObject {
  let text: string
  try {
    text = readFileSync(file, 'utf8').trim()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT')
      throw invalid(`the seal key ${file} does not exist`, { cause: error, reason: 'no-seal-key' })
    throw fileFailure(error, 'read the seal key', file)
  }
  const octets = Buffer.from(text, 'base64')
  if (octets.length !== KEY_BYTES || octets.toString('base64') !== text)
    throw invalid(`the seal key ${file} must hold ${KEY_BYTES} octets as base64 text`)
  return createSecretKey(octets)
}
