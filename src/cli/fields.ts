import { readFile } from 'node:fs/promises'
import type { Fields } from '../client/transport.ts'
import { invalid, messageOf } from '../lib/errors.ts'
import { isObject } from '../schema/answer-json.ts'

/**
 * Parameters as they are typed: `key=value`, `key=@file`, `key=-` (standard input), and `-` or `@file` for a whole JSON object. A value that
 * begins with `\@` or is `\-` is meant as it stands without the backslash; a key given several times is a list. One line end at the end of a
 * file or of standard input is dropped, for `echo` and editors add it and passwords do not have it.
 */
export async function readFields(words: readonly string[], readAll: () => Promise<string>): Promise<Fields> {
  if (words.filter((word) => word === '-' || word.endsWith('=-')).length > 1)
    throw invalid('standard input can be read only once: give "-" once')
  const fields: Record<string, Fields[string]> = {}
  for (const word of words) {
    if (word === '-') Object.assign(fields, objectOf(await readAll(), 'standard input'))
    else if (word.startsWith('@')) Object.assign(fields, objectOf(await readText(word.slice(1)), word.slice(1)))
    else {
      const equals = word.indexOf('=')
      if (equals <= 0) throw invalid(`"${word}" must be KEY=VALUE, KEY=@FILE, KEY=-, @FILE or -`)
      const key = word.slice(0, equals)
      const value = await textFrom(word.slice(equals + 1), readAll)
      const before = fields[key]
      if (before === undefined) fields[key] = value
      else fields[key] = Array.isArray(before) ? [...before, value] : [before, value]
    }
  }
  return fields
}

async function textFrom(text: string, readAll: () => Promise<string>): Promise<string> {
  if (text === '-') return withoutLineEnd(await readAll())
  if (text.startsWith('@')) return withoutLineEnd(await readText(text.slice(1)))
  return /^\\(@|-$)/.test(text) ? text.slice(1) : text
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw invalid(`cannot read ${file}: ${messageOf(cause)}`, { cause })
  }
}

function objectOf(text: string, where: string): Fields {
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw invalid(`${where} is not valid JSON`)
  }
  if (!isObject(parsed)) throw invalid(`${where} must hold a JSON object`)
  return parsed
}

export function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '')
}
