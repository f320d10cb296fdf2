import { join } from 'node:path'
import { createMemoryDriver } from '../../src/engine/storage/memory.ts'
import { openSqliteDriver } from '../../src/engine/storage/sqlite.ts'
import { testStorageDriver } from '../support/storage-conformance.ts'

testStorageDriver('memory', async () => createMemoryDriver())
testStorageDriver('SQLite', async (directory) => openSqliteDriver(join(directory, 'store.db')))
