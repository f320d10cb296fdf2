import type { ConditionInput } from './runtime/status.ts'

/** One statement about an object, to become a condition. */
export type Statement = ConditionInput

export const yes = (type: string, reason: string, message: string): Statement => ({
  type,
  status: 'True',
  reason,
  message,
})
export const no = (type: string, reason: string, message: string): Statement => ({
  type,
  status: 'False',
  reason,
  message,
})
export const unknown = (type: string, message = 'Waits for the conditions before it.'): Statement => ({
  type,
  status: 'Unknown',
  reason: 'Waiting',
  message,
})

/** The statements of an object of which this one fails: what is looked at before it holds. */
export function passed(failing: Statement): Statement[] {
  return failing.type === 'Accepted' ? [failing] : [yes('Accepted', 'Accepted', 'As declared.'), failing]
}

/** Reasons that only a change by a person ends: of the spec, of another object or of the directory. No hot retries then (b.6). */
const NEEDS_USER = new Set([
  'InvalidSpec',
  'InvalidTemplate',
  'TargetNotPermitted',
  'NamespaceNotAllowed',
  'NameConflict',
  'OwnedByApi',
  'EntryNotFound',
  'Refused',
  'NotOwned',
  'Missing',
  'SecretNotFound',
  'BindFailed',
])

/**
 * The whole list of conditions of an object: `expected` types in order, those not stated as Unknown; `Ready` in front, which repeats the
 * first that is not True; `Stalled` or `Reconciling` only while true, as kstatus reads them.
 */
export function summarise(expected: readonly string[], stated: readonly Statement[]): Statement[] {
  const types = stated.map(({ type }) => type)
  if (new Set(types).size < types.length) throw new Error(`a condition is stated twice: ${types.join(', ')}`)
  const conditions = expected.map((type) => stated.find((one) => one.type === type) ?? unknown(type))
  const failing =
    conditions.find(({ status }) => status === 'False') ?? conditions.find(({ status }) => status !== 'True')
  const rest = stated.filter(({ type }) => !expected.includes(type))
  if (!failing) return [yes('Ready', 'Ready', 'Everything is as declared.'), ...conditions, ...rest]
  const { reason, message } = failing
  const state = NEEDS_USER.has(reason)
    ? yes('Stalled', 'NeedsUserAction', message)
    : yes('Reconciling', 'Progressing', message)
  return [{ type: 'Ready', status: failing.status, reason, message }, ...conditions, ...rest, state]
}
