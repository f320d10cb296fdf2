/**
 * A store's SQLite file: opening it safely, its schema, and what its errors mean.
 *
 * One process has the file at a time (exclusive lock, held until close, gone with the process). The file of a newer version, a damaged
 * one and one that is not ours are refused before anything is written to them.
 */
import { closeSync, existsSync, fsyncSync, openSync, readSync, statSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { AppError, invalid, messageOf, unavailable } from '../../lib/errors.ts'
import { createPrivateFile, ensureDirectory, errnoOf, fileFailure, requireWritable, syncToDisk } from './files.ts'
import { MIGRATIONS } from './sqlite-migrations.ts'

/** "KTRN": tells our files from other programs' SQLite files. */
const APPLICATION_ID = 0x4b54524e
// Checking the whole structure takes about 5 ms per MB; larger files are only checked where they are read, so that a start takes
// as long with a million records as with none.
const CHECKED_AT_OPEN_BYTES = 32 * 1024 * 1024
const LOG_CHUNK_BYTES = 1024 * 1024

/** Opens, locks, checks and migrates the file, creating it (0600) when absent. */
export function openDatabase(file: string): DatabaseSync {
  ensureDirectory(dirname(file))
  createPrivateFile(file)
  // SQLite would only say "disk I/O error".
  requireWritable(file)
  requireWritable(dirname(file))
  let db: DatabaseSync | undefined
  try {
    // With locking_mode=EXCLUSIVE in place before the first read, WAL keeps its index in memory and the lock from the first transaction on.
    db = new DatabaseSync(file, { timeout: 0 })
    db.exec('PRAGMA locking_mode = EXCLUSIVE')
    requireOurs(db, file)
    // NORMAL flushes what checkpoints need, and no commit: who commits does (`wal-flush.ts`).
    db.exec(
      'PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON',
    )
    // A checkpoint writes each page once, however often it was written since: fewer of them cost less.
    db.exec('PRAGMA cache_size = -8192; PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 8000')
    db.exec('BEGIN IMMEDIATE; COMMIT')
    if (statSync(file).size <= CHECKED_AT_OPEN_BYTES) requireSound(db, file)
    if (isLive(file)) keepLog(`${file}-wal`)
    migrate(db)
    return db
  } catch (error) {
    close(db)
    throw openFailure(error, file)
  }
}

/**
 * A process that was killed, or whose flush failed, may have left what no disk has, though the kernel believes it written. It is written
 * again, so that nothing is told and nothing built on it that a loss of power takes away.
 */
function keepLog(wal: string): void {
  const fd = openSync(wal, 'r+')
  try {
    const chunk = Buffer.alloc(LOG_CHUNK_BYTES)
    for (let at = 0, size = 0; ; at += writeSync(fd, chunk, 0, size, at)) {
      size = readSync(fd, chunk, 0, chunk.length, at)
      if (size === 0) break
    }
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
  syncToDisk(dirname(wal))
}

/** Opens a file that nobody writes (a snapshot), changing nothing, not even beside it. */
export function openFrozenDatabase(file: string): DatabaseSync {
  if (!existsSync(file)) throw fileFailure(Object.assign(new Error('absent'), { code: 'ENOENT' }), 'open', file)
  if (isLive(file))
    throw unavailable(`${file} is in use by a server (or was left by one that was killed)`, { reason: 'store-in-use' })
  let db: DatabaseSync | undefined
  try {
    db = new DatabaseSync(new URL('?immutable=1', pathToFileURL(file)), { readOnly: true })
    if (requireOurs(db, file) === 0) throw damaged(file, 'it is empty')
    return db
  } catch (error) {
    close(db)
    throw openFailure(error, file)
  }
}

/** Whether changes of the file lie beside it, not yet in it: a copy of the file alone would lack them. */
export function isLive(file: string): boolean {
  return existsSync(`${file}-wal`) && statSync(`${file}-wal`).size > 0
}

/** Reads the whole file and throws `invalid` when its structure is damaged. */
export function requireSound(db: DatabaseSync, file: string): void {
  const found = Object.values(db.prepare('PRAGMA quick_check(1)').get() ?? {})[0]
  if (found !== 'ok') throw damaged(file, String(found))
}

/** What a failure of SQLite means to whoever wanted to read or write the store. `subject` is its name in the message. */
export function storeFailure(error: unknown, subject: string): unknown {
  const options = { cause: error }
  switch (resultCode(error)) {
    case undefined:
      return error
    case 13: // SQLITE_FULL
      return unavailable(`${subject} cannot be written: the disk is full; nothing was changed`, {
        ...options,
        reason: 'disk-full',
      })
    case 3: // SQLITE_PERM
    case 8: // SQLITE_READONLY
      return unavailable(
        `${subject} cannot be written: the file or its directory is read-only; nothing was changed`,
        options,
      )
    case 5: // SQLITE_BUSY
    case 6: // SQLITE_LOCKED
      return unavailable(`${subject} is in use by another process; one server at a time can open it`, {
        ...options,
        reason: 'store-in-use',
      })
    case 10: // SQLITE_IOERR
    case 14: // SQLITE_CANTOPEN
      return unavailable(`${subject} cannot be read or written (${messageOf(error)}); nothing was changed`, options)
    case 11: // SQLITE_CORRUPT
    case 26: // SQLITE_NOTADB
      return unavailable(`${subject} is damaged (${messageOf(error)}); restore a backup`, {
        ...options,
        reason: 'store-damaged',
      })
    default:
      return error
  }
}

/** SQLite's primary result code, if the error is one of SQLite's. */
export function resultCode(error: unknown): number | undefined {
  const isSqlite = error instanceof Error && errnoOf(error) === 'ERR_SQLITE_ERROR' && 'errcode' in error
  return isSqlite && typeof error.errcode === 'number' ? error.errcode & 0xff : undefined
}

function openFailure(error: unknown, file: string): unknown {
  if (error instanceof AppError) return error
  const code = resultCode(error)
  if (code === 11 || code === 26) return damaged(file, messageOf(error), error)
  if (code !== undefined) {
    const failure = storeFailure(error, `the store ${file}`)
    return failure instanceof AppError ? failure : damaged(file, messageOf(error), error)
  }
  return errnoOf(error)?.startsWith('E') ? fileFailure(error, 'open', file) : error
}

function damaged(file: string, what: string, cause?: unknown): AppError {
  return invalid(
    `the store ${file} is damaged or not a Keyturn store (${what}); nothing was changed, restore a backup`,
    {
      cause,
      reason: 'store-damaged',
    },
  )
}

/** The file's schema version, 0 for an empty file. */
function requireOurs(db: DatabaseSync, file: string): number {
  const version = pragma(db, 'user_version')
  const application = pragma(db, 'application_id')
  const isEmpty = db.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get() === undefined
  if (isEmpty && version === 0 && application === 0) return 0
  if (application !== APPLICATION_ID) throw damaged(file, 'it carries the mark of another program')
  if (version < 1) throw damaged(file, 'its format has no such number')
  if (version > MIGRATIONS.length)
    throw invalid(
      `the store ${file} was written by a newer version (format ${version}, this version reads up to ${MIGRATIONS.length})`,
    )
  return version
}

function migrate(db: DatabaseSync): void {
  for (let version = pragma(db, 'user_version'); version < MIGRATIONS.length; version++) {
    db.exec('BEGIN IMMEDIATE')
    db.exec(MIGRATIONS[version] ?? '')
    db.exec(`PRAGMA user_version = ${version + 1}; PRAGMA application_id = ${APPLICATION_ID}`)
    db.exec('COMMIT')
  }
}

function pragma(db: DatabaseSync, name: 'user_version' | 'application_id'): number {
  return Number(Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0])
}

function close(db: DatabaseSync | undefined): void {
  if (db?.isOpen) db.close()
}
