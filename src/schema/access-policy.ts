import * as z from 'zod'
import { count, statusFields } from './conditions.ts'
import { choice, text } from './fields.ts'
import { type Kind, list, map, type Rule, ruled, set } from './resource.ts'

const CAPABILITIES = ['create', 'read', 'update', 'patch', 'delete', 'list', 'sudo', 'deny'] as const

const parameterMap = () => map(list(text(512), { max: 32 }), { key: 256, max: 64 })

export const PolicyRule = z.object({
  path: text(512).min(1).describe('Exact path, or a prefix that ends in "*"; "+" stands for one segment.'),
  capabilities: set(choice(CAPABILITIES), { min: 1, max: 8 }),
  allowedParameters: parameterMap()
    .exactOptional()
    .describe('Parameters a write may have and their values; an empty list allows every value.'),
  deniedParameters: parameterMap().exactOptional(),
  requiredParameters: set(text(256).min(1), { max: 64 }).exactOptional(),
})

const Spec = z.object({
  rules: list(PolicyRule, { max: 256 }).exactOptional(),
  policy: text(65_536).min(1).exactOptional().describe('The policy as HCL or JSON text, instead of rules.'),
})

export const accessPolicyRules: Rule<z.input<typeof Spec>>[] = [
  {
    message: 'exactly one of rules (not empty) and policy is required',
    cel: '(has(self.rules) && size(self.rules) > 0) != has(self.policy)',
    check: ({ rules, policy }) => (rules?.length ?? 0) > 0 !== (policy !== undefined),
  },
]

const Status = z.object({
  ...statusFields,
  hash: text(128).exactOptional().describe('Of the policy text in force.'),
  usedBy: count().exactOptional().describe('How many mappings and login mounts give it.'),
})

/** An ACL policy: a grant, and so for administrators only. */
export const AccessPolicy = {
  kind: 'AccessPolicy',
  plural: 'accesspolicies',
  shortName: 'acp',
  scope: 'Cluster',
  description: 'The ACL policy of this name: which paths of the API a token may use and how.',
  spec: ruled(Spec, accessPolicyRules),
  status: Status,
  columns: [],
  reservedNames: ['root', 'default'],
} satisfies Kind
export type AccessPolicySpec = z.output<typeof AccessPolicy.spec>
export type AccessPolicyStatus = z.output<typeof AccessPolicy.status>
