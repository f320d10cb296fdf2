/** What one client may cost. Times in milliseconds. */
export interface Limits {
  /** Longest body of a request. */
  readonly bodyBytes: number
  /** All bodies under way together. */
  readonly allBodiesBytes: number
  readonly headBytes: number
  /** A request's head, or a PROXY header, or a TLS handshake, must have come in this time. */
  readonly headMs: number
  /** A whole request must have come in this time. */
  readonly receiveMs: number
  /** The engine is told to give up after this time. */
  readonly answerMs: number
  /** A connection on which nothing moves is closed after this time; longer than any answer may take. */
  readonly silentMs: number
  readonly keepAliveMs: number
  /** How often slow senders are looked for. */
  readonly checkMs: number
  /** How long a stopping server waits for what it began. */
  readonly shutdownMs: number
  /** Connections of one listener. */
  readonly connections: number
  /** Requests of one connection begun and not answered, at least 2; what is sent beyond them is not read. */
  readonly pipelined: number
}

export const DEFAULT_LIMITS: Limits = {
  bodyBytes: 32 * 1024 * 1024,
  allBodiesBytes: 256 * 1024 * 1024,
  headBytes: 16 * 1024,
  headMs: 10_000,
  receiveMs: 60_000,
  answerMs: 90_000,
  silentMs: 120_000,
  keepAliveMs: 75_000,
  checkMs: 2_000,
  shutdownMs: 20_000,
  connections: 10_000,
  pipelined: 4,
}
