import { invalid } from '../../../lib/errors.ts'
import { escapeFilterValue } from '../../directory/filter.ts'

const PLACE = /\{\{\s*\.(\w+)\s*\}\}/g

/** Fills the places (`{{.Username}}`) of a search filter; whatever is put in is escaped (RFC 4515). */
export function renderFilter(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(PLACE, (_, name: string) => escapeFilterValue(values[name] ?? ''))
}

/**
 * Throws `invalid` naming the field unless every place of the template is one of `known` and stands where a value does: only the attribute of an
 * administrator may stand left of the `=`.
 */
export function requirePlaces(template: string, known: readonly string[], field: string): void {
  const rest = template.replace(PLACE, (place, name: string) => (known.includes(name) ? '' : place))
  if (/\{\{|\}\}/.test(rest))
    throw invalid(`${field} may only use ${known.map((name) => `{{.${name}}}`).join(' and ')}`)
  for (const { 0: place, 1: name, index } of template.matchAll(PLACE)) {
    const before = template.slice(template.lastIndexOf('(', index) + 1, index)
    if (name !== 'UserAttr' && !before.includes('='))
      throw invalid(`${field}: ${place} may only stand for a value, right of the "="`)
  }
}
