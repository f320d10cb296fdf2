import { foldValue, normalizeDn } from '../../directory/dn.ts'

/** Names of mapped groups and users, and of aliases, as keys: what a directory takes for one name is one key. */
export function nameKey(name: string, config: { readonly caseSensitiveNames: boolean }): string {
  return config.caseSensitiveNames ? name.normalize('NFKC').trim().replace(/\s+/g, ' ') : foldValue(name)
}

/**
 * A name as its failed logins are counted. Directories differ in what is the same to them (Active Directory ignores accents), and two names
 * on one counter do less harm than one name on two.
 */
export function countedName(name: string): string {
  return name
    .normalize('NFKD')
    .replace(/[\p{M}\p{Default_Ignorable_Code_Point}]/gu, '')
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .toUpperCase()
    .toLowerCase()
}

/** An entry as failed logins into it are counted. Equal to no name, for no name has a line feed. */
export function countedEntry(dn: string): string {
  let name: string
  try {
    name = normalizeDn(dn)
  } catch {
    name = foldValue(dn)
  }
  return `entry\n${name}`
}
