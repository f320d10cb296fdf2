import { existsSync, statSync } from 'node:fs'
import { extname, join, resolve } from 'node:path'
import type { Clock } from '../../lib/clock.ts'
import { invalid } from '../../lib/errors.ts'
import { openBarrier } from '../seal/keyring.ts'
import type { Seal } from '../seal/seal.ts'
import type { StorageDriver } from './driver.ts'
import { createMemoryDriver } from './memory.ts'
import { openSqliteDriver } from './sqlite.ts'
import { Store } from './store.ts'

const MEMORY = 'memory:'
const FILE_NAME = 'keyturn.db'

/** Opens the driver that a location names: `memory:`, a data directory, or a file ending in `.db`. Dispose it at the end. */
export function openDriver(location: string): StorageDriver {
  return location === MEMORY ? createMemoryDriver() : openSqliteDriver(storeFile(location))
}

/** Whether a store was ever made at this location. Only when not, a new seal key makes sense. */
export function storeExists(location: string): boolean {
  return location !== MEMORY && existsSync(storeFile(location))
}

/** The SQLite file of a location. */
export function storeFile(location: string): string {
  if (location === '') throw invalid('the storage location is empty; name a directory or a file ending in .db')
  const scheme = /^([a-z][a-z0-9+.-]+):/i.exec(location)
  if (scheme) throw invalid(`storage cannot be "${scheme[1]}:"; use "memory:", a directory or a file ending in .db`)
  const path = resolve(location)
  const isDirectory = existsSync(path) ? statSync(path).isDirectory() : extname(path) !== '.db'
  return isDirectory ? join(path, FILE_NAME) : path
}

/** The sealed store over a driver; makes the keyring in an empty one. The driver stays the caller's to dispose. */
export async function openStore(options: { driver: StorageDriver; seal: Seal; clock: Clock }): Promise<Store> {
  return new Store(options.driver, await openBarrier(options.driver, options.seal), options.clock)
}
