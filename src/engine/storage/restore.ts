import { chmodSync, constants, copyFileSync, existsSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Clock } from '../../lib/clock.ts'
import { invalid, unavailable } from '../../lib/errors.ts'
import { isDamage } from '../seal/keyring.ts'
import type { Seal } from '../seal/seal.ts'
import { ensureDirectory, errnoOf, fileFailure, publishFile } from './files.ts'
import { openStore, storeFile } from './open.ts'
import { setRestoreMark } from './restore-mark.ts'
import { openSqliteDriver } from './sqlite.ts'
import { isLive, openDatabase, openFrozenDatabase, requireSound } from './sqlite-file.ts'
import type { Change, Store } from './store.ts'

// Numbers that the lost store may have given out after the backup was taken stay below this distance.
const NUMBERS_SKIPPED = 1_000_000_000

/**
 * Lays a snapshot into a location that has no store yet and marks it restored. The snapshot itself is never written. It appears under
 * the store's name only when it was proven to be whole and to open with the seal; on any failure nothing stays behind. Returns the
 * store's file.
 */
export async function restoreSnapshot(options: {
  snapshot: string
  location: string
  seal: Seal
  clock: Clock
  /** What is to be changed in the restored store before it appears; on a throw nothing stays behind. */
  amend?: (store: Store) => Promise<Change[]>
}): Promise<string> {
  const { snapshot, location, seal, clock, amend } = options
  const file = storeFile(location)
  if (existsSync(file) || isLive(file))
    throw invalid(`${file} exists already: a backup is only restored where no store is`)
  requireWhole(snapshot)
  ensureDirectory(dirname(file))
  const working = `${file}.restoring`
  removeStore(working)
  try {
    copy(snapshot, working)
    skipNumbers(working)
    {
      await using driver = openSqliteDriver(working)
      const store = await openStore({ driver, seal, clock })
      await requireReadable(store, snapshot)
      await store.commit([setRestoreMark(clock.now()), ...((await amend?.(store)) ?? [])])
    }
    // Closing folded everything into the one file.
    if (isLive(working)) throw unavailable(`the restored store ${working} could not be completed; nothing was changed`)
    publishFile(working, file)
  } finally {
    removeStore(working)
  }
  return file
}

function requireWhole(snapshot: string): void {
  const db = openFrozenDatabase(snapshot)
  try {
    requireSound(db, snapshot)
  } finally {
    db.close()
  }
}

/** A value whose octets are in place may still be another than was written. */
async function requireReadable(store: Store, snapshot: string): Promise<void> {
  try {
    await store.requireWhole()
  } catch (cause) {
    if (!isDamage(cause)) throw cause
    throw invalid(`the backup ${snapshot} is damaged (${cause.message}); nothing was restored`, {
      cause,
      reason: 'store-damaged',
    })
  }
}

function copy(from: string, to: string): void {
  try {
    copyFileSync(from, to, constants.COPYFILE_EXCL)
    chmodSync(to, 0o600)
  } catch (error) {
    throw fileFailure(error, errnoOf(error) === 'ENOSPC' ? 'write' : `copy ${from} to`, to)
  }
}

/**
 * Whoever followed the event feed of the lost store may have seen later numbers than the backup knows. New events must not reuse them,
 * so all numbers jump ahead, and the events of before are forgotten: followers see a gap and list anew.
 */
function skipNumbers(file: string): void {
  const db = openDatabase(file)
  try {
    db.exec(`BEGIN IMMEDIATE; DELETE FROM event;
      UPDATE counter SET version = version + ${NUMBERS_SKIPPED}, event = event + ${NUMBERS_SKIPPED}; COMMIT`)
  } finally {
    db.close()
  }
}

function removeStore(file: string): void {
  for (const part of [file, `${file}-wal`, `${file}-shm`, `${file}-journal`]) rmSync(part, { force: true })
}
