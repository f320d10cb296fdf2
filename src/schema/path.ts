import { invalid } from '../lib/errors.ts'

const PLAIN = /^[A-Za-z0-9_/-]*$/
// What has no ink: controls, unassigned and private characters, and every space but the common one.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|[^\P{Zs} ]/u

/** The rules that every path of the API keeps, whichever way it comes in. Throws `invalid`. */
export function requirePath(path: string): void {
  if (PLAIN.test(path)) return
  if (UNPRINTABLE.test(path)) throw invalid('the path holds characters that cannot be printed')
  if (path.split('/').includes('..')) throw invalid('the path must not hold the segment ".."')
}

/** The path of a list always ends with a slash, so that `LIST a/b` and `LIST a/b/` are one request. */
export function listPath(path: string): string {
  return path.endsWith('/') ? path : `${path}/`
}
