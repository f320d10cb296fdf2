import { invalid } from '../../lib/errors.ts'
import { CONTROLLER_POLICY } from '../policy/built-in.ts'
import { policyName } from '../policy/policy-service.ts'

/** Policies that no login and no request may put on a token. */
const NOT_GRANTED = new Set([CONTROLLER_POLICY, 'response-wrapping'])

/**
 * The policies of a token: lower-cased, without repetitions, sorted, with `default` unless told otherwise. Throws `invalid` naming
 * `field` for those that are never granted, and for `root` where it is not allowed.
 */
export function tokenPolicies(
  names: readonly string[],
  options: { readonly noDefault: boolean; readonly root: 'allowed' | 'refused'; readonly field: string },
): string[] {
  const policies = new Set(names.map(policyName).filter((name) => name !== ''))
  for (const name of policies)
    if (NOT_GRANTED.has(name) || (name === 'root' && options.root === 'refused'))
      throw invalid(`${options.field}: the policy "${name}" cannot be given to this token`)
  // The root policy needs no other.
  if (policies.has('root')) return ['root']
  if (!options.noDefault) policies.add('default')
  return [...policies].sort()
}

/** Whether two sets of policies are the same but for `default`. */
export function samePolicies(a: readonly string[], b: readonly string[]): boolean {
  const essence = (names: readonly string[]) =>
    JSON.stringify([...new Set(names)].filter((n) => n !== 'default').sort())
  return essence(a) === essence(b)
}
