import * as z from 'zod'
import { text } from './fields.ts'
import { list, type Rule, ruled, set, textPairs } from './resource.ts'

const OBJECT_NAME = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/
const NAMESPACE = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/
const DATA_KEY = /^[-._a-zA-Z0-9]+$/

/** Name of a Kubernetes object. */
export const objectName = () => text(253).regex(OBJECT_NAME, 'must be the name of an object')
export const namespaceName = () => text(63).regex(NAMESPACE, 'must be the name of a namespace')
/** Key in the data of a Secret or ConfigMap. */
export const dataKey = () => text(253).regex(DATA_KEY, 'must be a key of letters, digits, ".", "_" and "-"')

/** A cluster-scoped object, or one in the referrer's own namespace. References never name a namespace (b.2). */
export const objectRef = () => z.object({ name: objectName() })
export const keyRef = () => z.object({ name: objectName(), key: dataKey() })

/** A DN; compared RDN by RDN in the engine, so only its size is checked here. */
export const dn = () => text(1024).min(1)

const selectorOperator = z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist'])

const Requirement = z.object({
  key: text(317),
  operator: selectorOperator,
  values: list(text(63), { max: 64 }).exactOptional(),
})
const valuesFitOperator: Rule<z.input<typeof Requirement>> = {
  message: 'In and NotIn need values; Exists and DoesNotExist take none',
  cel: "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
  check: ({ operator, values }) => (operator === 'In' || operator === 'NotIn') === (values ?? []).length > 0,
}

/** Kubernetes' label selector. */
export const labelSelector = () =>
  z.object({
    matchLabels: textPairs(32, { key: 317, value: 63 }).exactOptional(),
    matchExpressions: list(ruled(Requirement, [valuesFitOperator]), { max: 16 }).exactOptional(),
  })

const Namespaces = z.object({
  names: set(namespaceName(), { max: 256 }).exactOptional().describe('Namespaces by name.'),
  selector: labelSelector().exactOptional().describe('Namespaces by label.'),
})
const namesOrSelector: Rule<z.input<typeof Namespaces>> = {
  message: 'names or selector is required; an empty one would mean nobody or everybody by accident',
  cel: '(has(self.names) && size(self.names) > 0) || (has(self.selector) && ((has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)))',
  check: ({ names, selector }) =>
    (names?.length ?? 0) > 0 ||
    Object.keys(selector?.matchLabels ?? {}).length > 0 ||
    (selector?.matchExpressions?.length ?? 0) > 0,
}

/** Namespaces by name or by label; whichever matches. */
export const namespaces = () => ruled(Namespaces, [namesOrSelector])
export type Namespaces = z.output<typeof Namespaces>
