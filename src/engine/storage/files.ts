import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AppError, invalid, messageOf, unavailable } from '../../lib/errors.ts'

/** The `code` of a file system error, such as `ENOSPC`. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}

/** The path itself is wrong, and stays so. */
const WRONG_PATH = ['ENOENT', 'ENOTDIR', 'EISDIR']
const PLAIN_WORDS: Record<string, string> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  ENOENT: 'no such file or directory',
  ENOTDIR: 'a part of its path is not a directory',
  EISDIR: 'it is a directory',
}

/** Says in plain words why a file could not be `verb`ed; throws on what is no error of the file system, as that is our bug. */
export function fileFailure(error: unknown, verb: string, file: string): AppError {
  if (error instanceof AppError) return error
  if (errnoOf(error) === undefined) throw error
  const code = errnoOf(error) ?? ''
  const told = WRONG_PATH.includes(code) ? invalid : unavailable
  return told(`cannot ${verb} ${file}: ${PLAIN_WORDS[code] ?? messageOf(error)}`, { cause: error })
}

/** Makes a directory and what is missing above it, readable by its owner only; leaves an existing one alone. */
export function ensureDirectory(directory: string): void {
  if (existsSync(directory)) return
  // One level at a time: Node's recursive form reports a read-only file system as "no such file".
  ensureDirectory(dirname(directory))
  try {
    mkdirSync(directory, { mode: 0o700 })
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw fileFailure(error, 'create the directory', directory)
  }
}

/** Throws `unavailable` saying why when this process cannot read and write `path`. */
export function requireWritable(path: string): void {
  try {
    accessSync(path, constants.R_OK | constants.W_OK)
  } catch (error) {
    throw fileFailure(error, 'write', path)
  }
}

/** Creates an empty file that only its owner can read. Returns whether it was absent; never opens an existing one. */
export function createPrivateFile(file: string): boolean {
  try {
    closeSync(openSync(file, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600))
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw fileFailure(error, 'create', file)
  }
}

/** Makes a file's content, or a directory's entries, survive a loss of power. */
export function syncToDisk(path: string): void {
  const fd = openSync(path, 'r')
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** Makes a large file's content survive a loss of power while the event loop goes on. */
export async function flushFile(path: string): Promise<void> {
  await using file = await open(path)
  await file.sync()
}

/** Gives a finished file its name, durably; throws `invalid` when that name is taken, and then leaves both as they are. */
export function publishFile(finished: string, file: string): void {
  syncToDisk(finished)
  try {
    linkSync(finished, file)
    rmSync(finished)
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw alreadyThere(file)
    // Some network file systems have no hard links.
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'].includes(errnoOf(error) ?? '')) throw error
    if (existsSync(file)) throw alreadyThere(file)
    renameSync(finished, file)
  }
  syncToDisk(dirname(file))
}

export function alreadyThere(file: string): AppError {
  return invalid(`${file} exists already and is not overwritten`)
}
