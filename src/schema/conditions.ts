import * as z from 'zod'
import { integer, text } from './fields.ts'

const timestamp = () => text(64).meta({ format: 'date-time' })

/** One statement about an object, as Kubernetes spells it. */
export const Condition = z.object({
  type: text(316),
  status: z.enum(['True', 'False', 'Unknown']),
  observedGeneration: integer({ min: 0, max: Number.MAX_SAFE_INTEGER }).exactOptional(),
  lastTransitionTime: timestamp(),
  reason: text(1024),
  message: text(32_768),
})
export type Condition = z.output<typeof Condition>

export const instant = timestamp
export const count = () => integer({ min: 0, max: Number.MAX_SAFE_INTEGER })

/** The fields that every status has. */
export const statusFields = {
  observedGeneration: count().exactOptional().describe('Generation of the spec that this status speaks of.'),
  conditions: z.array(Condition).max(16).exactOptional().meta({ mapKey: 'type' }),
  lastHandledReconcileRequest: text(256)
    .exactOptional()
    .describe('Value of the annotation keyturn.dev/reconcile-requested-at that was handled last.'),
}
