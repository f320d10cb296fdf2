import { AppError, type ErrorKind } from '../../lib/errors.ts'

/** What a failure of a reconcile means to the resource: the reason of its condition, and whether trying again can help. */
export interface Outcome {
  readonly reason: string
  /** `backoff`: try again soon, then less and less often. `stalled`: only a change of the spec or of the directory helps. */
  readonly retry: 'backoff' | 'stalled'
}

/** The only table from kinds of errors to conditions. */
const OUTCOMES: Record<ErrorKind, Outcome> = {
  invalid: { reason: 'Refused', retry: 'stalled' },
  // Rights are given, and tokens renewed, without any change of the object.
  denied: { reason: 'Refused', retry: 'backoff' },
  'not-found': { reason: 'NotFound', retry: 'stalled' },
  unsupported: { reason: 'Refused', retry: 'stalled' },
  'too-large': { reason: 'Refused', retry: 'stalled' },
  unavailable: { reason: 'EngineUnavailable', retry: 'backoff' },
}

/** What is no `AppError` is a bug of ours: it is tried again, since the next version may have it repaired. */
export function outcomeOf(error: unknown): Outcome {
  return error instanceof AppError ? OUTCOMES[error.kind] : { reason: 'InternalError', retry: 'backoff' }
}
