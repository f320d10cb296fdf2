import type { EngineRequest } from '../engine/request.ts'
import { invalid } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'
import type { ContentAnswer, EngineAnswer } from '../schema/answer.ts'
import { layoutAnswer } from '../schema/answer-json.ts'

export interface Reply {
  readonly status: number
  /** JSON text, or nothing. */
  readonly body?: string
}

/** What the engine answered, as status and JSON text. */
export function encode(answer: EngineAnswer, request: Pick<EngineRequest, 'dialect' | 'fields'>): Reply {
  const layout = layoutAnswer(answer, request.dialect, reveal)
  switch (layout.kind) {
    case 'nothing':
      return { status: 204 }
    case 'absent':
      return { status: 404, body: JSON.stringify(layout.body) }
    case 'content': {
      const status = answer.kind === 'content' && answer.health ? healthStatus(answer.health, request.fields) : 200
      return { status, body: JSON.stringify(layout.body) }
    }
    default:
      return layout satisfies never
  }
}

/** The one place of the API where secrets become text: the body of the answer to who asked for them. */
function reveal(secret: Secret): string {
  return secret.reveal()
}

const HEALTH = {
  active: { status: 200, override: 'activecode' },
  standby: { status: 429, override: 'standbycode' },
  sealed: { status: 503, override: 'sealedcode' },
} as const

/** Load balancers choose by the query which status means what. */
function healthStatus(health: NonNullable<ContentAnswer['health']>, query: Readonly<Record<string, unknown>>): number {
  const { status, override } = HEALTH[health]
  const given = query[override]
  if (given !== undefined) {
    if (typeof given !== 'string' || !/^[2-5]\d\d$/.test(given))
      throw invalid(`${override} must be a status from 200 to 599`)
    return Number(given)
  }
  if (health === 'standby' && (isOn(query['standbyok']) || isOn(query['perfstandbyok']))) return 200
  return status
}

function isOn(value: unknown): boolean {
  return value !== undefined && value !== 'false' && value !== '0'
}
