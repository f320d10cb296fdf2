import { expect, test } from 'vitest'
import { openEngineStore } from '../../../test/support/engine-store.ts'
import { TestClock } from '../../../test/support/test-clock.ts'
import { unavailable } from '../../lib/errors.ts'
import { publish, type Store } from '../storage/store.ts'
import { createRotationRecords } from './rotation-records.ts'

const clock = new TestClock()
const signal = new AbortController().signal

/** A log that refuses the records whose number is in `refuses`. */
function recorder(store: Store) {
  const lines: { type: string; number?: unknown; event?: unknown; first_kept?: unknown }[] = []
  const refuses = new Set<number>()
  const audit = {
    async event(type: string, facts: Readonly<Record<string, string | number | boolean>>) {
      if (refuses.has(Number(facts['number']))) throw unavailable('the disk is full')
      lines.push({ type, ...facts })
    },
  }
  return { lines, refuses, worker: () => createRotationRecords({ store, audit, clock }) }
}

const happen = (store: Store, ...types: string[]) =>
  store.commit(types.map((type) => publish({ type, mount: 'ldap/', path: 'static-role/app' })))

test('rotations, failures and drifts are recorded once, in order, over restarts; nothing else is', async () => {
  const { store } = await openEngineStore(clock)
  const { lines, worker } = recorder(store)
  await happen(store, 'config-write', 'rotate', 'static-role-create', 'rotate-fail')
  await worker().tick(signal)
  expect(lines.map(({ number, event }) => [number, event])).toEqual([
    [2, 'rotate'],
    [4, 'rotate-fail'],
  ])
  await happen(store, 'drift')
  await worker().tick(signal)
  await worker().tick(signal)
  expect(lines.slice(2)).toMatchObject([{ type: 'rotation', number: 5, event: 'drift', mount: 'ldap/' }])
})

test('a record that cannot be written is written later, and those before it not again', async () => {
  const { store } = await openEngineStore(clock)
  const { lines, refuses, worker } = recorder(store)
  await happen(store, 'rotate', 'rotate', 'rotate')
  refuses.add(2)
  const one = worker()
  await expect(one.tick(signal)).rejects.toThrow('the disk is full')
  await expect(one.tick(signal)).rejects.toThrow('the disk is full')
  expect(lines.map(({ number }) => number)).toEqual([1])
  refuses.clear()
  await worker().tick(signal)
  expect(lines.map(({ number }) => number)).toEqual([1, 2, 3])
})

test('an event that cannot be read is told as a gap, and what follows it is recorded', async () => {
  const { store, driver } = await openEngineStore(clock)
  const { lines, worker } = recorder(store)
  await happen(store, 'rotate', 'rotate', 'rotate')
  // The memory driver gives out what it holds.
  const [damaged] = (await driver.events(1, 1)).events
  damaged?.value.fill(1, 20, 21)
  await worker().tick(signal)
  await worker().tick(signal)
  expect(lines).toEqual([
    expect.objectContaining({ type: 'rotation', number: 1 }),
    { type: 'rotation-gap', after: 1, first_kept: 3 },
    expect.objectContaining({ type: 'rotation', number: 3 }),
  ])
})

test('events that went before they could be recorded are told as a gap', async () => {
  const { store } = await openEngineStore(clock)
  const { lines, worker } = recorder(store)
  await happen(store, 'rotate')
  await worker().tick(signal)
  await happen(store, 'rotate', 'rotate', 'rotate')
  await store.pruneEvents({ before: new Date(0), keep: 1 })
  await worker().tick(signal)
  await worker().tick(signal)
  expect(lines.slice(1)).toEqual([
    { type: 'rotation-gap', after: 1, first_kept: 4 },
    expect.objectContaining({ type: 'rotation', number: 4 }),
  ])
})
