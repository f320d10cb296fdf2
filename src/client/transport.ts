import type { Operation } from '../engine/request.ts'
import type { Secret } from '../lib/secret.ts'
import type { Json, JsonObject } from '../schema/answer-json.ts'

/** Parameters of a request. Secrets stay wrapped until the transport sends them. */
type Field = null | boolean | number | string | Secret | readonly Field[] | { readonly [name: string]: Field }
export type Fields = Readonly<Record<string, Field>>

export interface DoorRequest {
  readonly operation: Operation
  /** Without `/v1/` and not percent-encoded. */
  readonly path: string
  readonly fields: Fields
  readonly token: Secret | undefined
  readonly principal: string | undefined
  readonly owner: string | undefined
}

/** `nothing`: done. `absent`: nothing there. `content`: the JSON of the answer, as HTTP shows it. */
export type DoorAnswer =
  | { readonly kind: 'nothing' }
  | { readonly kind: 'absent' }
  | { readonly kind: 'content'; readonly body: Json }

/**
 * A way to the engine's door. Every way gives the same answers to the same requests; failures are `AppError`s, and whatever is our own bug
 * on the other side is a plain `Error`.
 */
export interface Transport extends AsyncDisposable {
  send(request: DoorRequest, signal: AbortSignal): Promise<DoorAnswer>
}

/** Query parameters as a server reads them: texts, and lists of texts. */
export function queryOf(fields: JsonObject): [name: string, value: string][] {
  return Object.entries(fields).flatMap(([name, value]): [string, string][] => {
    if (value === null) return []
    if (Array.isArray(value)) return value.map((item): [string, string] => [name, textOf(item)])
    return [[name, textOf(value)]]
  })
}

function textOf(value: Json): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
