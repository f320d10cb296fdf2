import { createSecretKey, type KeyObject } from 'node:crypto'
import { closeSync, constants, fsyncSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { invalid } from '../../lib/errors.ts'
import { type Random, systemRandom } from '../../lib/random.ts'
import { ensureDirectory, errnoOf, fileFailure, syncToDisk } from '../storage/files.ts'
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
  ensureDirectory(dirname(file))
  let fd: number
  try {
    fd = openSync(file, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600)
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return
    throw fileFailure(error, 'create the seal key', file)
  }
  try {
    writeSync(fd, `${random.bytes(KEY_BYTES).toString('base64')}\n`)
    fsyncSync(fd)
  } catch (error) {
    // Half a key would be refused at every later start.
    rmSync(file, { force: true })
    throw fileFailure(error, 'write the seal key', file)
  } finally {
    closeSync(fd)
  }
  // Losing the key loses the store: its name must survive a loss of power as well.
  syncToDisk(dirname(file))
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
