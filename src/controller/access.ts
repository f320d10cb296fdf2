import type { Client } from '../client/client.ts'
import type { Fields } from '../client/transport.ts'
import { AppError } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'
import { no, type Statement } from './conditions.ts'
import { KubeError } from './runtime/kube-error.ts'

/** For whom and for which object the controller asks. */
export interface As {
  /** `kubernetes:<namespace>`. */
  readonly principal?: string
  /** `cr:<uid>`. */
  readonly owner?: string
  /** Breaks the call off. */
  readonly signal?: AbortSignal
}

/** What reconcilers use of the engine's client. Throws `AppError`. */
export interface EngineAccess {
  /** The answer's values; `undefined` when there is nothing. */
  read(path: string, as?: As): Promise<Readonly<Record<string, unknown>> | undefined>
  list(path: string, as?: As): Promise<readonly string[]>
  /** Returns the engine's warnings. */
  write(path: string, fields: Fields, as?: As): Promise<readonly string[]>
  delete(path: string, as?: As): Promise<void>
}

/** The client as reconcilers use it. */
export function engineAccess(client: Pick<Client, 'read' | 'list' | 'write' | 'delete'>): EngineAccess {
  return {
    read: async (path, as = {}) => (await client.read(path, {}, as))?.data,
    list: (path, as = {}) => client.list(path, as),
    write: async (path, fields, as = {}) => (await client.write(path, fields, as))?.warnings ?? [],
    delete: async (path, as = {}) => {
      await client.delete(path, {}, as)
    },
  }
}

type Answer = Readonly<Record<string, unknown>>

/** A text of an answer; empty when absent. */
export function textOf(answer: Answer, name: string): string {
  const value = answer[name]
  if (value instanceof Date) return value.toISOString()
  if (value instanceof Secret) throw new Error(`${name} is a secret`)
  return value === undefined || value === null ? '' : String(value)
}

export function numberOf(answer: Answer, name: string): number {
  const value = Number(answer[name] ?? 0)
  return Number.isFinite(value) ? value : 0
}

/** An instant of an answer; `undefined` when absent or the zero time. */
export function instantOf(answer: Answer, name: string): Date | undefined {
  const text = textOf(answer, name)
  const at = new Date(text)
  return text === '' || Number.isNaN(at.getTime()) || at.getUTCFullYear() <= 1970 ? undefined : at
}

export function secretOf(answer: Answer, name: string): Secret {
  const value = answer[name]
  return value instanceof Secret ? value : new Secret(typeof value === 'string' ? value : '')
}

/** What a refusal means to the resource. `unavailable` is left to the caller, who tries again. */
export function refusal(error: AppError): Statement {
  const { reason, message } = error
  switch (reason) {
    case 'not-permitted':
      return no('Accepted', 'TargetNotPermitted', message)
    case 'owned-by-api':
      return no('Synced', 'OwnedByApi', `${message}. Set adoptionPolicy: Adopt to take it over without rotating.`)
    case 'name-conflict':
      return no('Accepted', 'NameConflict', message)
    case 'absent':
      return no('Synced', 'EntryNotFound', message)
    default:
      return no('Synced', failureReason(error), message)
  }
}

/** Who failed: the engine or the cluster; or that the request itself was refused. */
export function failureReason(error: AppError): string {
  if (error.kind !== 'unavailable') return 'Refused'
  return error instanceof KubeError ? 'ClusterUnavailable' : 'EngineUnavailable'
}

/** The statement for an error thrown by the engine; rethrows what is our own bug. */
export function statementFor(error: unknown): { readonly statement: Statement; readonly retry: AppError | undefined } {
  if (!(error instanceof AppError)) throw error
  const statement = refusal(error)
  return { statement, retry: isWorthRetrying(error, statement) ? error : undefined }
}

/** A token that an engine does not know is one of its life before: the next one is known. */
export function isWorthRetrying({ kind }: AppError, { reason }: Statement): boolean {
  return kind === 'unavailable' || (kind === 'denied' && reason === 'Refused')
}
