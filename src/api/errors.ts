import { AppError, type ErrorKind } from '../lib/errors.ts'
import type { Logger } from '../lib/log.ts'
import type { Random } from '../lib/random.ts'

/** The only place where failures become numbers of HTTP. */
const STATUS: Record<ErrorKind, number> = {
  invalid: 400,
  denied: 403,
  'not-found': 404,
  unsupported: 405,
  'too-large': 413,
  unavailable: 503,
}

/** A refusal that only HTTP knows and the engine never sees, such as a patch in the wrong media type. */
export class HttpRefusal extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.name = 'HttpRefusal'
    this.status = status
  }
}

export interface ErrorReply {
  readonly status: number
  readonly errors: readonly string[]
  /** Small, for clients wait that long with the user looking on. */
  readonly retryAfterS?: number
  /** For programs that must tell failures of one status apart, in the header `X-Keyturn-Reason`. */
  readonly reason?: string
}

/** What a failure tells the caller. Whatever is not an expected failure is our bug: a fixed text to the caller, all of it to the log. */
export function errorReply(
  error: unknown,
  { log, random, about }: { log: Logger; random: Random; about: Readonly<Record<string, string>> },
): ErrorReply {
  if (error instanceof AppError) {
    const reason = error.reason === undefined ? {} : { reason: error.reason }
    if (error.kind === 'unavailable') {
      log.warn({ ...about, reason: error.message, cause: causes(error.cause) }, 'request could not be served now')
      return { status: STATUS.unavailable, errors: [error.message], retryAfterS: 1 + random.integer(5), ...reason }
    }
    const message = error.kind === 'denied' ? deniedText(error.message) : error.message
    return { status: STATUS[error.kind], errors: [message], ...reason }
  }
  if (error instanceof HttpRefusal) return { status: error.status, errors: [error.message] }
  log.error({ ...about, error: causes(error) }, 'request failed by a fault of the program')
  return { status: 500, errors: ['internal error'] }
}

/** Clients look for `permission denied` in a text that is a list of errors. */
function deniedText(message: string): string {
  const reasons = message.includes('permission denied') ? [message] : ['permission denied', message]
  const title = reasons.length === 1 ? '1 error occurred' : `${reasons.length} errors occurred`
  return `${title}:\n${reasons.map((reason) => `\t* ${reason}\n`).join('')}\n`
}

function causes(error: unknown): string[] {
  const found: string[] = []
  for (let at = error; at !== undefined && found.length < 5; at = at instanceof Error ? at.cause : undefined)
    found.push(at instanceof Error ? (at.stack ?? at.message) : String(at))
  return found
}
