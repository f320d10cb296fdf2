import { invalid } from '../../../lib/errors.ts'

const NAME = /^[a-z0-9_]([a-z0-9_.\-/]*[a-z0-9_])?$/
const NAME_LIMIT = 512

/** The one spelling of a role's name. */
export function foldRoleName(given: string): string {
  return given.toLowerCase()
}

/** The name of a role or set as it is kept: lower-case. Throws `invalid` for a name that cannot be. */
export function requireRoleName(given: string): string {
  const name = foldRoleName(given)
  if (name.length > NAME_LIMIT) throw invalid(`name: it is longer than ${NAME_LIMIT} characters`)
  if (!NAME.test(name))
    throw invalid(
      'name: it must begin and end with a letter, digit or "_", with letters, digits, "_", "-", "." and "/" between',
    )
  if (name.split('/').some((segment) => segment === '' || segment === '.' || segment === '..'))
    throw invalid('name: it must not have empty, "." or ".." segments')
  return name
}

/** The folder that a list asks for, `''` or with a trailing slash. */
export function listedFolder(given: string): string {
  const folder = foldRoleName(given).replace(/\/$/, '')
  return folder === '' ? '' : `${folder}/`
}
