import type { EngineAnswer } from '../../schema/answer.ts'
import type { Caller } from '../backend.ts'
import type { EngineRequest } from '../request.ts'
import type { Barrier } from '../seal/barrier.ts'
import { type Hash, recordedAnswer, recordedFields, recordedMessage } from './recorded.ts'

/**
 * Who did what, one JSON line before a request is served and one with its outcome. Texts in bodies and answers, and every token, stand
 * there as keyed hashes: equal values can be found, none can be read. A line that cannot be written refuses the request.
 */
export interface Audit {
  /** `place.fields`: the names of fields that are known there; what else stands as a name may be a secret in the wrong place. */
  request(
    request: EngineRequest,
    caller: Caller | undefined,
    place: { readonly mountType: string; readonly fields: readonly string[] },
    at: Date,
  ): Promise<void>
  response(request: EngineRequest, caller: Caller | undefined, outcome: Outcome, at: Date): Promise<void>
  /** Work nobody asked for at this moment: an automatic rotation (`rotation-records.ts`). The facts hold no secret. */
  event(type: string, facts: Readonly<Record<string, string | number | boolean>>, at: Date): Promise<void>
}

export type Outcome =
  | { readonly answer: EngineAnswer }
  | { readonly error: { readonly kind: string; readonly message: string } }

/** Where the lines go. Resolves when the line is with the operating system; rejects when it could not be written. */
export interface AuditDevice extends AsyncDisposable {
  write(line: string): Promise<void>
}

/** Without a device nothing is recorded. */
export function createAudit(device: AuditDevice | undefined, barrier: Barrier): Audit {
  const hash = (text: string) => (text === '' ? '' : `hmac-sha256:${barrier.hash('audit', text)}`)
  // The same in both lines of a request; the caller lives as long as the request.
  const described = new WeakMap<Caller, object>()
  const authOf = (caller: Caller | undefined) => {
    if (!caller?.tokenKey) return null
    const auth = described.get(caller) ?? describe(caller, hash)
    described.set(caller, auth)
    return auth
  }
  const write = async (record: object) => device?.write(`${JSON.stringify(record)}\n`)
  return {
    async request(request, caller, place, at) {
      if (!device) return
      await write({
        time: at,
        type: 'request',
        auth: authOf(caller),
        request: {
          ...requestOf(request),
          mount_type: place.mountType,
          ...recordedFields(request.fields, place.fields, hash),
        },
      })
    },
    async response(request, caller, outcome, at) {
      if (!device) return
      await write({
        time: at,
        type: 'response',
        auth: authOf(caller),
        request: requestOf(request),
        ...('error' in outcome
          ? { error: { ...outcome.error, message: recordedMessage(outcome.error.message, request.fields, hash) } }
          : { response: responseOf(outcome.answer, hash) }),
      })
    },
    async event(type, facts, at) {
      await write({ time: at, type, ...facts })
    },
  }
}

function requestOf(request: EngineRequest) {
  return {
    id: request.id,
    operation: request.operation,
    path: request.path,
    remote_address: request.remote.address,
    transport: request.remote.transport,
    ...(request.owner !== undefined && { owner: request.owner }),
  }
}

function describe(caller: Caller, hash: Hash): object {
  return {
    display_name: caller.displayName,
    principal: caller.principal ?? null,
    accessor: hash(caller.tokenAccessor),
    entity_id: caller.entityId,
    policies: caller.policies,
  }
}

function responseOf(answer: EngineAnswer, hash: Hash) {
  if (answer.kind !== 'content') return { kind: answer.kind }
  const { auth } = answer
  return {
    kind: answer.kind,
    mount_type: answer.mountType,
    ...(answer.keys && { keys: answer.keys.length }),
    ...(answer.data && recordedAnswer(answer.data, hash)),
    ...(auth && {
      auth: {
        client_token: hash(auth.clientToken.reveal()),
        accessor: hash(auth.accessor),
        policies: auth.policies,
        entity_id: auth.entityId,
      },
    }),
  }
}
