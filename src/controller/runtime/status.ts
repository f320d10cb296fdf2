import type { KubeClient } from './kube-client.ts'
import { KubeError } from './kube-error.ts'
import type { ResourceType } from './kube-object.ts'

export type ConditionStatus = 'True' | 'False' | 'Unknown'

export interface Condition {
  readonly type: string
  readonly status: ConditionStatus
  readonly reason: string
  readonly message: string
  readonly observedGeneration?: number
  readonly lastTransitionTime: string
}

/** What a reconciler states; the times are worked out from what was there before. */
export type ConditionInput = Pick<Condition, 'type' | 'status' | 'reason' | 'message'>

const LONGEST_MESSAGE = 32_768

/**
 * The conditions to write: those stated and no others, in the order stated. A time changes only when `status` does, so that
 * stating the same again is the same status and costs no write.
 */
export function nextConditions(
  before: readonly Condition[],
  stated: readonly ConditionInput[],
  { generation, now }: { readonly generation: number; readonly now: Date },
): Condition[] {
  return stated.map(({ type, status, reason, message }) => {
    const old = before.find((condition) => condition.type === type)
    return {
      type,
      status,
      reason,
      message: message.slice(0, LONGEST_MESSAGE),
      observedGeneration: generation,
      lastTransitionTime: old?.status === status ? old.lastTransitionTime : seconds(now),
    }
  })
}

/** The API's Time: whole seconds. */
export function seconds(at: Date): string {
  return at.toISOString().replace(/\.\d+Z$/, 'Z')
}

/** Equal as JSON: the order of keys and absent values do not count. */
export function sameJson(a: unknown, b: unknown): boolean {
  return canonical(a) === canonical(b)
}

/** JSON with sorted keys. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  )
}

/**
 * Applies a whole status with force under one manager, so that it never conflicts. `undefined`: the object is gone. The server
 * compares no uid on this path; a finalizer that is taken off last keeps a successor of the name from getting this status.
 */
export async function applyStatus(
  client: KubeClient,
  type: ResourceType,
  { name, namespace }: { readonly name: string; readonly namespace?: string | undefined },
  status: unknown,
  manager: string,
): Promise<{ readonly resourceVersion: string } | undefined> {
  const body = { metadata: { name, ...(namespace && { namespace }) }, status }
  try {
    const options = { manager, force: true, subresource: 'status', metadataOnly: true } as const
    const { object } = await client.apply(type, { name, namespace }, body, options)
    return { resourceVersion: object.metadata.resourceVersion ?? '' }
  } catch (error) {
    if (error instanceof KubeError && error.status === 404) return undefined
    throw error
  }
}
