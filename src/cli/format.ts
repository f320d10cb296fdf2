import { stringify } from 'yaml'
import type { Answer } from '../client/client.ts'
import { invalid } from '../lib/errors.ts'
import type { Json, JsonObject } from '../schema/answer-json.ts'

export type Format = 'table' | 'json' | 'yaml'

export function requireFormat(text: string): Format {
  if (text === 'table' || text === 'json' || text === 'yaml') return text
  throw invalid('--format must be table, json or yaml')
}

/** An answer as a person reads it, or as a program does: then with the members that the API gives. */
export function formatAnswer(answer: Answer, format: Format): string {
  const { requestId, data, auth, lease, warnings } = answer
  if (format === 'table') return table('Key', 'Value', rowsOf(answer))
  const whole: JsonObject =
    requestId === ''
      ? (data ?? {})
      : {
          request_id: requestId,
          lease_id: lease?.id ?? '',
          lease_duration: (lease?.durationMs ?? 0) / 1000,
          renewable: lease?.renewable ?? false,
          data: data ?? null,
          auth: auth ?? null,
          warnings: warnings.length === 0 ? null : warnings,
        }
  return formatJson(whole, format)
}

export function formatKeys(keys: readonly string[], format: Format): string {
  return format === 'table'
    ? ['Keys', '----', ...keys.map(printable)].join('\n').concat('\n')
    : formatJson(keys, format)
}

export function formatJson(value: Json, format: 'json' | 'yaml'): string {
  return format === 'json' ? `${JSON.stringify(value, undefined, 2)}\n` : stringify(value)
}

/** One field alone, texts as they are. Throws `invalid` when there is none of that name. */
export function fieldOf(answer: Answer, name: string): string {
  const value = answer.data?.[name] ?? answer.auth?.[name]
  if (value === undefined) throw invalid(`the answer has no field "${name}"`)
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function rowsOf({ data, auth, lease }: Answer): [string, Json][] {
  const rows: [string, Json][] = []
  if (lease)
    rows.push(
      ['lease_id', lease.id],
      ['lease_duration', `${lease.durationMs / 1000}s`],
      ['lease_renewable', lease.renewable],
    )
  rows.push(...Object.entries(auth ?? {}), ...Object.entries(data ?? {}))
  return rows
}

/** Two aligned columns under a heading. */
export function table(left: string, right: string, rows: readonly (readonly [string, Json])[]): string {
  const cells = [
    [left, right],
    ['-'.repeat(left.length), '-'.repeat(right.length)],
    ...rows.map(([key, value]) => [printable(key), cell(value)]),
  ]
  const width = Math.max(...cells.map(([key = '']) => key.length))
  return cells
    .map(([key = '', value = '']) => `${key.padEnd(width)}  ${value}`.trimEnd())
    .join('\n')
    .concat('\n')
}

function cell(value: Json): string {
  if (value === null) return '-'
  if (Array.isArray(value))
    return value.every((item) => typeof item !== 'object') ? value.map(cell).join(', ') : JSON.stringify(value)
  return typeof value === 'object' ? JSON.stringify(value) : printable(String(value))
}

/** Control characters from a directory must not reach the terminal. */
function printable(text: string): string {
  return text.replace(/\p{C}/gu, (character) => {
    const short = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[character]
    return short ?? `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`
  })
}
