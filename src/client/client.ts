import { backoffMs } from '../lib/backoff.ts'
import type { Clock } from '../lib/clock.ts'
import { AppError } from '../lib/errors.ts'
import type { Random } from '../lib/random.ts'
import type { Secret } from '../lib/secret.ts'
import { isObject, type Json, type JsonObject } from '../schema/answer-json.ts'
import { requirePath } from '../schema/path.ts'
import { type Followed, followedOf } from './events.ts'
import type { DoorAnswer, Fields, Transport } from './transport.ts'

/**
 * A typed client of the engine's door, the same for the controller, the CLI and tests, over HTTP or in the same process. Failures are
 * `AppError`s with the engine's own words. What it returns is plain JSON: the caller wraps what is secret in it.
 */
export interface Answer {
  readonly requestId: string
  /** Payload; of answers without envelope (health), the whole of it. */
  readonly data: JsonObject | undefined
  readonly auth: JsonObject | undefined
  readonly warnings: readonly string[]
  readonly keys: readonly string[]
  readonly lease: { readonly id: string; readonly durationMs: number; readonly renewable: boolean } | undefined
}

/** For whom a call is made: principal and owner only with the controller's token. */
export interface CallOptions {
  readonly principal?: string
  readonly owner?: string
  /** In place of the client's own token. */
  readonly token?: Secret
  readonly signal?: AbortSignal
}

export interface Client extends AsyncDisposable {
  /** Undefined when nothing is there. */
  read(path: string, query?: Fields, options?: CallOptions): Promise<Answer | undefined>
  /** Empty when nothing is there. */
  list(path: string, options?: CallOptions): Promise<readonly string[]>
  /** Undefined when it is done and there is nothing to say. */
  write(path: string, body?: Fields, options?: CallOptions): Promise<Answer | undefined>
  delete(path: string, query?: Fields, options?: CallOptions): Promise<Answer | undefined>
  /** Logs in by directory password; `mount` is the path below `auth/`. The token is in `auth.client_token`. */
  login(mount: string, username: string, password: Secret, options?: CallOptions): Promise<Answer>
  /** What happens after event `after`, for as long as the signal lets it; goes on by itself when the server is away for a while. */
  followEvents(after: number, signal: AbortSignal): AsyncGenerator<Followed, void>
}

export interface ClientDeps {
  readonly transport: Transport
  readonly clock: Clock
  readonly random: Random
  /** Asked before each call, for a token may be replaced while the client lives. */
  readonly token?: () => Promise<Secret | undefined>
}

const NEVER = new AbortController().signal
const EVENT_WAIT = '30s'

export function createClient({ transport, clock, random, token }: ClientDeps): Client {
  const send = async (
    operation: 'read' | 'list' | 'write' | 'delete',
    path: string,
    fields: Fields,
    { principal, owner, token: other, signal = NEVER }: CallOptions,
  ): Promise<Answer | undefined> => {
    requirePath(path)
    const request = {
      operation,
      path: path.replace(/^\/+/, ''),
      fields,
      token: other ?? (await token?.()),
      principal,
      owner,
    }
    return answerOf(await transport.send(request, signal))
  }
  return {
    read: (path, query = {}, options = {}) => send('read', path, query, options),
    list: async (path, options = {}) => (await send('list', path, {}, options))?.keys ?? [],
    write: (path, body = {}, options = {}) => send('write', path, body, options),
    delete: (path, query = {}, options = {}) => send('delete', path, query, options),
    async login(mount, username, password, { signal = NEVER } = {}) {
      const path = `auth/${mount.replace(/^\/+|\/+$/g, '')}/login/${username}`
      const sent = {
        operation: 'write',
        path,
        fields: { password },
        token: undefined,
        principal: undefined,
        owner: undefined,
      } as const
      const answer = answerOf(await transport.send(sent, signal))
      if (!answer?.auth) throw new Error(`the login at ${path} was answered without a token`)
      return answer
    },
    async *followEvents(after, signal) {
      let last = after
      let failures = 0
      while (!signal.aborted) {
        let answer: Answer | undefined
        try {
          answer = await send('read', 'sys/events', { after: last, wait: EVENT_WAIT }, { signal })
          failures = 0
        } catch (error) {
          if (signal.aborted) return
          if (!(error instanceof AppError) || error.kind !== 'unavailable') throw error
          failures += 1
          const pause = backoffMs(failures, { firstMs: 250, limitMs: 10_000 }, random)
          await clock.sleep(pause, signal).catch(() => undefined)
          continue
        }
        for (const followed of followedOf(answer?.data ?? {}, last)) {
          yield followed
          last = followed.kind === 'gap' ? followed.resumeAfter : followed.event.number
        }
      }
    },
    [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose](),
  }
}

function answerOf(answer: DoorAnswer): Answer | undefined {
  if (answer.kind !== 'content') return undefined
  const body = isObject(answer.body) ? answer.body : {}
  if (typeof body['request_id'] !== 'string')
    return { requestId: '', data: body, auth: undefined, warnings: [], keys: [], lease: undefined }
  const data = objectOf(body['data'])
  const leaseId = body['lease_id']
  const seconds = body['lease_duration']
  return {
    requestId: body['request_id'],
    data,
    auth: objectOf(body['auth']),
    warnings: textsOf(body['warnings']),
    keys: textsOf(data?.['keys']),
    lease:
      typeof leaseId === 'string' && leaseId !== ''
        ? {
            id: leaseId,
            durationMs: typeof seconds === 'number' ? seconds * 1000 : 0,
            renewable: body['renewable'] === true,
          }
        : undefined,
  }
}

function objectOf(value: Json | undefined): JsonObject | undefined {
  return isObject(value) ? value : undefined
}

function textsOf(value: Json | undefined): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : []
}
