/**
 * What went wrong, in the words of the caller. Each edge has one table from kind to its own numbers
 * (`api/errors.ts`, `controller/runtime/outcome.ts`, `cli/exit.ts`).
 *
 * - `invalid`: the request is wrong, or the directory definitely refused it; the same request fails again.
 * - `denied`: who asks may not.
 * - `not-found`: no such mount, route or object (reading an absent object is not an error: return `undefined`).
 * - `unsupported`: the route exists, the operation does not.
 * - `too-large`: the request body is over the limit.
 * - `unavailable`: directory, store or server cannot answer now; nothing was changed; try again soon.
 */
export type ErrorKind = 'invalid' | 'denied' | 'not-found' | 'unsupported' | 'too-large' | 'unavailable'

/** An expected failure. `message` may be shown to the caller and holds no secret; `cause` is only logged. */
export class AppError extends Error {
  readonly kind: ErrorKind
  /** Machine-readable reason in kebab-case, where a caller inside the program must tell failures of one kind apart. */
  readonly reason: string | undefined
  constructor(kind: ErrorKind, message: string, options: { cause?: unknown; reason?: string } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'AppError'
    this.kind = kind
    this.reason = options.reason
  }
}

type Options = { cause?: unknown; reason?: string }
export const invalid = (message: string, options?: Options) => new AppError('invalid', message, options)
export const denied = (message = 'permission denied', options?: Options) => new AppError('denied', message, options)
export const notFound = (message: string, options?: Options) => new AppError('not-found', message, options)
export const unsupported = (message = 'unsupported operation', options?: Options) =>
  new AppError('unsupported', message, options)
export const unavailable = (message: string, options?: Options) => new AppError('unavailable', message, options)

/** The message of anything thrown, for texts that add meaning to it. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
