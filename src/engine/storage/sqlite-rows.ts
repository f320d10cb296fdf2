import type { SQLOutputValue } from 'node:sqlite'
import type { DriverRecord } from './driver.ts'

type Row = Record<string, SQLOutputValue>

/** A row of the table `record`; throws a `TypeError` for one that nobody of us wrote. */
export function toRecord(row: Row): DriverRecord {
  const { key, queue, due } = row
  if (typeof key !== 'string') throw new TypeError('a record of the store has no key')
  return {
    key,
    version: integer(row['version']),
    value: octets(row['value']),
    ...(typeof queue === 'string' && { due: { queue, at: new Date(integer(due)) } }),
  }
}

export function integer(value: SQLOutputValue | undefined): number {
  if (typeof value !== 'number') throw new TypeError('a field of the store should be an integer and is not')
  return value
}

export function octets(value: SQLOutputValue | undefined): Uint8Array {
  if (!(value instanceof Uint8Array)) throw new TypeError('a field of the store should be octets and is not')
  return value
}
