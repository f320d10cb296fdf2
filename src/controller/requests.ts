import { createHash } from 'node:crypto'

/** Annotations by which a person asks for something once; the status repeats the value that was handled last. */
export const RECONCILE_REQUEST = 'keyturn.dev/reconcile-requested-at'
export const ROTATE_REQUEST = 'keyturn.dev/rotate-requested-at'

const LONGEST_ECHO = 256

/** The value of a request as the status repeats it: the digest of one that is longer than the status takes. */
export function echoOf(value: string | undefined): string | undefined {
  if (value === undefined || value.length <= LONGEST_ECHO) return value
  return `sha256:${createHash('sha256').update(value).digest('hex')}`
}
