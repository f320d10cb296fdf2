import * as z from 'zod'
import type { Random } from '../../lib/random.ts'
import { VersionConflict } from '../storage/driver.ts'
import { put, recordKind, type Store } from '../storage/store.ts'

/**
 * Who is who across logins: one stable entity per (auth mount, alias name). Nothing is said here of what an entity may do.
 */
export interface IdentityService {
  /** The entity's id (a UUID) of an alias on a mount; made at the first login. Alias names compare case-insensitively. */
  entityFor(mountAccessor: string, aliasName: string): Promise<string>
}

const aliasKind = recordKind('identity/alias/', z.object({ name: z.string(), entityId: z.string() }))

/** The entities of a store. */
export function createIdentityService({
  store,
  random,
}: {
  readonly store: Store
  readonly random: Random
}): IdentityService {
  return {
    async entityFor(mountAccessor, aliasName) {
      const key = `${mountAccessor}/${aliasName.normalize('NFC').toLowerCase()}`
      const known = await store.read(aliasKind, key)
      if (known) return known.value.entityId
      const entityId = random.uuid()
      try {
        await store.commit([put(aliasKind, key, { name: aliasName, entityId }, { expected: 0 })])
        return entityId
      } catch (error) {
        if (!(error instanceof VersionConflict)) throw error
        // Somebody logged in under the same name at the same moment and was first; an alias is never removed.
        const first = await store.read(aliasKind, key)
        if (!first) throw error
        return first.value.entityId
      }
    },
  }
}
