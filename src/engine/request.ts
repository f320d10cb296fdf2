import type { Secret } from '../lib/secret.ts'
import type { EngineAnswer } from '../schema/answer.ts'

/**
 * What goes in at the engine door, with nothing of HTTP in it; what comes out is in `schema/answer.ts`. `api/` and `client/` translate.
 */
export type Operation = 'read' | 'list' | 'write' | 'delete'

export interface EngineRequest {
  readonly id: string
  readonly operation: Operation
  /** Without `/v1/`, percent-decoded once: `ldap/static-role/team/app`. */
  readonly path: string
  readonly token?: Secret
  /** How lists are answered where the two dialects differ. */
  readonly dialect: 'envelope' | 'bare'
  /** Body of a write; query of everything else. */
  readonly fields: Readonly<Record<string, unknown>>
  readonly remote: Remote
  /** For whom the controller asks, `kubernetes:<namespace>`. Refused from anybody else. */
  readonly principal?: string
  /** On whose behalf an object is written, `cr:<uid>`. Refused from anybody but the controller. */
  readonly owner?: string
  /** Aborted when nobody is there any more to hear the answer: what has not begun by then need not. */
  readonly gone?: AbortSignal
}

export interface Remote {
  readonly address: string
  readonly transport: 'tcp' | 'unix' | 'in-process'
}

/** The engine's one door, whoever knocks: HTTP, the controller in the same process, a test. Throws `AppError`; anything else is our bug. */
export interface EngineDoor {
  handle(request: EngineRequest, signal: AbortSignal): Promise<EngineAnswer>
}
