import { AppError, type ErrorKind } from '../lib/errors.ts'

/** What a command's end tells a script. */
const CODE: Record<ErrorKind, number> = {
  invalid: 2,
  unsupported: 2,
  'too-large': 2,
  denied: 3,
  'not-found': 4,
  unavailable: 5,
}

export const EXIT_CODES = [
  '0  done',
  '1  a fault of the server or of this program',
  '2  the command or the request is wrong',
  '3  permission denied',
  '4  nothing is there',
  '5  the server, its store or its directory cannot be had now; try again',
]

export function exitCode(error: unknown): number {
  return error instanceof AppError ? CODE[error.kind] : 1
}

const HINTS: Readonly<Record<string, string>> = {
  'untrusted-certificate':
    'Give its CA with --ca-cert FILE or KEYTURN_CACERT; that of a server without a certificate of its own is DATA/tls/ca.crt.',
  'other-name': 'Ask it by a name of its certificate; a server puts more names into its own with --tls-names.',
  'no-tls': 'For a server without TLS the address begins with http://.',
  closed: 'For a server with TLS the address begins with https://.',
}

/** What to try, where that can be told. `command` is what ended so. */
export function hintFor(error: unknown, command: string): string | undefined {
  if (!(error instanceof AppError)) return undefined
  if (error.kind === 'denied' && command !== 'login')
    return 'The token may not do this, has ended, or is missing: "keyturn login" gives a new one.'
  return HINTS[error.reason ?? '']
}
