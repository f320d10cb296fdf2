import { expect, test } from 'vitest'
import * as z from 'zod'
import { killedAfter, openEngineStore } from '../../../test/support/engine-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import { systemRandom } from '../../lib/random.ts'
import type { Backend } from '../backend.ts'
import type { StorageDriver } from '../storage/driver.ts'
import { put, recordKind, remove, type Store } from '../storage/store.ts'
import { createMountRemoval } from './mount-removal.ts'
import { MountTable } from './mount-table.ts'

const clock = new TestClock()
const { signal } = new AbortController()
const ownedKind = recordKind('owned/', z.object({}))

/** A server over a store: its mounts, and a backend that keeps one record for each thing written to a mount. */
async function serverOn(driver?: StorageDriver) {
  const opened = await openEngineStore(clock, driver)
  const { store } = opened
  const backend: Backend = {
    type: 'ldap',
    routes: [],
    async unmount({ id }) {
      for (const { key } of await store.list(ownedKind, `${id}/`, { limit: 100 }))
        await store.commit([remove(ownedKind, key, { expected: 'any' })])
    },
  }
  const mounts = new MountTable(store, new Map([['secret/ldap', backend]]), systemRandom)
  await mounts.ensure([])
  const removal = createMountRemoval({ mounts: () => mounts, clock })
  return { ...opened, mounts, ...removal, tick: () => removal.worker.tick(signal) }
}

const write = (store: Store, mountId: string, name: string) =>
  store.commit([put(ownedKind, `${mountId}/${name}`, {}, { expected: 0 })])
const kept = async (store: Store) => (await store.list(ownedKind, '', { limit: 100 })).map(({ key }) => key)
const APP = { class: 'secret', type: 'ldap', path: 'app/' } as const

test('a mount that is removed is found by nobody, owns nothing, and its path is free', async () => {
  const { store, mounts, remove: removeMount } = await serverOn()
  const mount = await mounts.add(APP)
  for (const name of ['a', 'b', 'c']) await write(store, mount.id, name)
  await removeMount(mount, signal)
  expect(await kept(store)).toEqual([])
  expect(await mounts.find('app/x')).toBeUndefined()
  expect(await mounts.byId(mount.id)).toBeUndefined()
  expect(await mounts.ofType('secret', 'ldap')).toEqual([])
  expect((await mounts.add(APP)).id).not.toBe(mount.id)
})

test('what a request that had found it before wrote late is forgotten as well, and at last the mount', async () => {
  const { store, mounts, remove: removeMount, tick } = await serverOn()
  const mount = await mounts.add(APP)
  await removeMount(mount, signal)
  const next = await mounts.add(APP)
  await write(store, mount.id, 'late')
  await write(store, next.id, 'new')
  await clock.advance(await tick())
  await write(store, mount.id, 'later')
  for (let ticks = 0; (await mounts.retired()).length > 0; ticks++) {
    expect(ticks).toBeLessThan(10)
    await clock.advance(await tick())
  }
  expect(await kept(store)).toEqual([`${next.id}/new`])
})

test.each([1, 2, 3])('killed after its commit %i, the removal is completed by the next start', async (commits) => {
  const before = await serverOn()
  const mount = await before.mounts.add(APP)
  for (const name of ['a', 'b', 'c']) await write(before.store, mount.id, name)
  const dying = await serverOn(killedAfter(before.driver, commits))
  await expect(dying.remove(mount, signal)).rejects.toThrow('killed')
  const after = await serverOn(before.driver)
  expect(await after.mounts.find('app/x')).toBeUndefined()
  await after.tick()
  expect(await kept(after.store)).toEqual([])
})

test('one that is removed twice at once is told of once', async () => {
  const { store, mounts, remove: removeMount } = await serverOn()
  const mount = await mounts.add(APP)
  await Promise.all([removeMount(mount, signal), removeMount(mount, signal)])
  const { events } = await store.events(0, 100)
  expect(events.map(({ type }) => type)).toEqual(['mount-create', 'mount-delete'])
})
