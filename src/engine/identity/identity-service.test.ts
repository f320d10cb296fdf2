import { beforeEach, expect, it } from 'vitest'
import { openEngineStore } from '../../../test/support/engine-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import { systemRandom } from '../../lib/random.ts'
import type { Store } from '../storage/store.ts'
import { createIdentityService, type IdentityService } from './identity-service.ts'

let store: Store
let identity: IdentityService
beforeEach(async () => {
  store = (await openEngineStore(new TestClock())).store
  identity = createIdentityService({ store, random: systemRandom })
})

it('gives an alias of a mount one entity for ever, in every case and on every server', async () => {
  const id = await identity.entityFor('auth_ldap_1', 'Bob')
  expect(id).toMatch(/^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/)
  const other = createIdentityService({ store, random: systemRandom })
  for (const name of ['Bob', 'bob', 'BOB']) expect(await other.entityFor('auth_ldap_1', name)).toBe(id)
  // The same letter, composed and decomposed.
  expect(await identity.entityFor('m', 'Jos\u00e9')).toBe(await identity.entityFor('m', 'jose\u0301'))
})

it('keeps names and mounts apart, whatever is in the names', async () => {
  const ids = await Promise.all([
    identity.entityFor('m', 'a'),
    identity.entityFor('m', 'a/b'),
    identity.entityFor('n', 'a'),
    identity.entityFor('m', 'Ä, ö'),
  ])
  expect(new Set(ids).size).toBe(4)
})

it('gives one entity to many first logins at once', async () => {
  const ids = await Promise.all(Array.from({ length: 10 }, () => identity.entityFor('m', 'bob')))
  expect(new Set(ids).size).toBe(1)
})
