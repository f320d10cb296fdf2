import { AppError, type ErrorKind } from '../../lib/errors.ts'

/**
 * What a failed operation says about the world:
 *
 * - `bind-refused`: our own name or password is wrong (49 and its kin); trying again can lock the account.
 * - `rejected`: the value was refused by the directory's rules (a password policy); another value may pass.
 * - `absent`: the entry is not there.
 * - `refused`: the directory will not do it: no access, wrong schema, not unique, needs TLS. The same request fails again.
 * - `unavailable`: nothing was changed, and later it may work: not reachable, busy, timed out before anything was sent.
 * - `unknown-outcome`: the request may have been carried out: no answer came.
 */
export type DirectoryErrorClass = 'bind-refused' | 'rejected' | 'absent' | 'refused' | 'unavailable' | 'unknown-outcome'

const KIND: Record<DirectoryErrorClass, ErrorKind> = {
  'bind-refused': 'unavailable',
  rejected: 'invalid',
  absent: 'invalid',
  refused: 'invalid',
  unavailable: 'unavailable',
  'unknown-outcome': 'unavailable',
}

/** A directory operation that did not succeed. The message names the server and what its code means; it never holds a password. */
export class DirectoryError extends AppError {
  readonly class: DirectoryErrorClass
  /** LDAP result code (RFC 4511, appendix A), where the server gave one. */
  readonly resultCode: number | undefined
  /** URL of the server that answered or did not. */
  readonly server: string | undefined

  constructor(
    errorClass: DirectoryErrorClass,
    message: string,
    options: { cause?: unknown; resultCode?: number; server?: string } = {},
  ) {
    super(KIND[errorClass], message, { cause: options.cause, reason: errorClass })
    this.name = 'DirectoryError'
    this.class = errorClass
    this.resultCode = options.resultCode
    this.server = options.server
  }
}

export function isDirectoryError(error: unknown): error is DirectoryError {
  return error instanceof DirectoryError
}

/** Result codes: what each means for us (RFC 4511, appendix A.2). Codes not listed count as `refused`. */
const RESULT_CODES: ReadonlyMap<number, readonly [DirectoryErrorClass, string]> = new Map([
  [1, ['unavailable', 'operations error']],
  [2, ['refused', 'protocol error']],
  [3, ['unavailable', 'time limit exceeded']],
  [4, ['refused', 'size limit exceeded']],
  [7, ['refused', 'authentication method not supported']],
  [8, ['refused', 'a stronger authentication is required; use StartTLS or ldaps']],
  [10, ['refused', 'the server refers to another one; referrals are not followed']],
  [11, ['refused', 'administrative limit exceeded']],
  [13, ['refused', 'confidentiality required; use StartTLS or ldaps']],
  [16, ['refused', 'no such attribute']],
  [17, ['refused', 'undefined attribute type']],
  [19, ['rejected', 'constraint violation; the password policy of the directory refuses the value']],
  [20, ['rejected', 'attribute or value exists']],
  [21, ['rejected', 'invalid attribute syntax']],
  [32, ['absent', 'no such object']],
  [33, ['refused', 'alias problem']],
  [34, ['refused', 'invalid DN syntax']],
  [48, ['bind-refused', 'inappropriate authentication']],
  [49, ['bind-refused', 'invalid credentials']],
  [50, ['refused', 'insufficient access rights']],
  [51, ['unavailable', 'busy']],
  [52, ['unavailable', 'unavailable']],
  [53, ['rejected', 'unwilling to perform']],
  [65, ['refused', 'object class violation']],
  [68, ['refused', 'entry already exists']],
  [80, ['unavailable', 'other error']],
])

// Codes with which a server refuses a bind for its name or password (53 and 19 where accounts are disabled or locked): asking again may lock it.
const REFUSED_BINDS: ReadonlySet<number> = new Set([19, 32, 34, 48, 49, 50, 53])

/** The error of a result code. 49 in answer to anything but a bind says nothing about our own credentials: it is a refusal. */
export function fromResultCode(code: number, server: string, operation: 'bind' | 'search' | 'modify', cause?: unknown) {
  const [known, meaning] = RESULT_CODES.get(code) ?? ['refused', 'the server refused']
  const errorClass =
    operation === 'bind'
      ? REFUSED_BINDS.has(code)
        ? 'bind-refused'
        : known
      : known === 'bind-refused'
        ? 'refused'
        : known
  return new DirectoryError(errorClass, `${operation} at ${server}: ${meaning} (result code ${code})`, {
    resultCode: code,
    server,
    cause,
  })
}
