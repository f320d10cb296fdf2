import { AppError, type ErrorKind } from '../../lib/errors.ts'

/** A refusal or failure of the API server. Status 0: no answer came. `kind` says what to do, `status` and `statusReason` what it said. */
export class KubeError extends AppError {
  readonly status: number
  /** The server's own CamelCase reason, such as `Conflict` or `Expired`. */
  readonly statusReason: string
  /** Reasons of the single causes, such as `NamespaceTerminating`. */
  readonly causes: readonly string[]
  /** What the server asked us to wait. */
  readonly retryAfterMs: number | undefined
  constructor(
    what: string,
    answer: { status: number; statusReason?: string; text?: string; causes?: readonly string[]; retryAfterMs?: number },
    cause?: unknown,
  ) {
    const said = answer.text ?? answer.statusReason ?? 'no answer'
    super(kindOf(answer.status), `${what}: ${said}${answer.status > 0 ? ` (${answer.status})` : ''}`, {
      cause,
      ...(answer.status === 403 && { reason: 'forbidden' }),
    })
    this.name = 'KubeError'
    this.status = answer.status
    this.statusReason = answer.statusReason ?? ''
    this.causes = answer.causes ?? []
    this.retryAfterMs = answer.retryAfterMs
  }
  /** The server cannot go on from that resource version: it has forgotten it, or, set back by a restore, never heard of it. List anew. */
  get isExpired(): boolean {
    const isForgotten = this.status === 410 || this.statusReason === 'Expired' || this.statusReason === 'Gone'
    return isForgotten || this.causes.includes('ResourceVersionTooLarge')
  }
}

/** Makes an error of a `Status` object, as it comes as a body or in an ERROR event of a watch. */
export function errorOfStatus(what: string, httpStatus: number, body: unknown, retryAfter?: string): KubeError {
  const status = isRecord(body) ? body : {}
  const details = isRecord(status['details']) ? status['details'] : {}
  const causes = Array.isArray(details['causes']) ? details['causes'] : []
  const waitS = Number(retryAfter ?? details['retryAfterSeconds'])
  return new KubeError(what, {
    status: typeof status['code'] === 'number' ? status['code'] : httpStatus,
    ...(typeof status['reason'] === 'string' && { statusReason: status['reason'] }),
    text: typeof status['message'] === 'string' && status['message'] !== '' ? status['message'] : `HTTP ${httpStatus}`,
    causes: causes.flatMap((cause) =>
      isRecord(cause) && typeof cause['reason'] === 'string' ? [cause['reason']] : [],
    ),
    ...(Number.isFinite(waitS) && waitS >= 0 && { retryAfterMs: waitS * 1000 }),
  })
}

/**
 * 409 is `unavailable`: the caller looks again and then knows what to do. So are 401, 403 and 404: rights and resources come without any
 * change of the object at hand, and a server that has just started refuses for a moment what it grants.
 */
function kindOf(status: number): ErrorKind {
  switch (status) {
    case 405:
    case 406:
    case 415:
      return 'unsupported'
    case 413:
      return 'too-large'
    case 400:
    case 422:
      return 'invalid'
    default:
      return 'unavailable'
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
