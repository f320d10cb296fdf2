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
