import type { EngineDoor } from '../engine/request.ts'
import type { Random } from '../lib/random.ts'
import type { Secret } from '../lib/secret.ts'
import { isObject, type JsonObject, jsonOf, layoutAnswer } from '../schema/answer-json.ts'
import { listPath } from '../schema/path.ts'
import { queryOf, type Transport } from './transport.ts'

/** Knocks at the engine's door in the same process, with the same requests and answers as over HTTP. */
export function inProcessTransport({ engine, random }: { engine: EngineDoor; random: Random }): Transport {
  return {
    async send(request, signal) {
      const { operation, path, token, principal, owner } = request
      const sent = jsonOf(request.fields, reveal)
      const body = isObject(sent) ? sent : {}
      const answer = await engine.handle(
        {
          id: random.uuid(),
          operation,
          path: operation === 'list' ? listPath(path) : path,
          dialect: 'envelope',
          fields: operation === 'write' ? body : grouped(body),
          remote: { address: '', transport: 'in-process' },
          ...(token && { token }),
          ...(principal !== undefined && { principal }),
          ...(owner !== undefined && { owner }),
        },
        signal,
      )
      const layout = layoutAnswer(answer, 'envelope', reveal)
      return layout.kind === 'absent' ? { kind: 'absent' } : layout
    },
    async [Symbol.asyncDispose]() {},
  }
}

/** Both ways through the door secrets are plain text, as they are over HTTP: the engine wraps what comes, the caller what it gets. */
function reveal(secret: Secret): string {
  return secret.reveal()
}

function grouped(fields: JsonObject): JsonObject {
  const read: Record<string, string | string[]> = {}
  for (const [name, value] of queryOf(fields)) {
    const before = read[name]
    read[name] = before === undefined ? value : [...(Array.isArray(before) ? before : [before]), value]
  }
  return read
}
