import { invalid } from '../../lib/errors.ts'
import { type HclMember, type HclValue, isHclObject, parseHcl } from './hcl.ts'

/** One rule of a policy: a pattern of paths and what is allowed there. */
export interface PolicyRule {
  /** Without leading slash: exact, or with `+` for one segment and `*` at the end for any rest. */
  readonly pattern: string
  readonly capabilities: ReadonlySet<Capability>
  /** Names in lower case; an empty list of values stands for every value. */
  readonly allowedParameters: Parameters
  readonly deniedParameters: Parameters
  readonly requiredParameters: readonly string[]
}
export type Parameters = ReadonlyMap<string, readonly HclValue[]>

const CAPABILITIES = ['create', 'read', 'update', 'patch', 'delete', 'list', 'sudo', 'deny'] as const
export type Capability = (typeof CAPABILITIES)[number]

const LEGACY: ReadonlyMap<string, readonly Capability[]> = new Map([
  ['deny', ['deny']],
  ['read', ['read', 'list']],
  ['write', ['create', 'read', 'update', 'patch', 'delete', 'list']],
  ['sudo', ['create', 'read', 'update', 'patch', 'delete', 'list', 'sudo']],
])

/** The text of a policy as it was meant: base64 of HCL or JSON is taken apart, anything else left as it is. */
export function plainPolicyText(text: string): string {
  const packed = text.replace(/\s+/g, '')
  // A policy with a rule in it has quotes and braces, which base64 has not.
  if (packed === '' || packed.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(packed)) return text
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(packed, 'base64'))
  } catch {
    return text
  }
}

/** Reads the rules of a policy in HCL or JSON; `invalid` with the line and the reason of the first fault. */
export function parsePolicy(text: string): PolicyRule[] {
  if (text.trim() === '') throw invalid('policy must not be empty')
  const rules: PolicyRule[] = []
  for (const member of parseHcl(text, 'policy').members) {
    if (member.key === 'name' && member.labels.length === 0 && typeof member.value === 'string') continue
    if (member.key !== 'path') throw at(member, `"${member.key}" is not known here; a policy is made of path blocks`)
    rules.push(...rulesOf(member))
  }
  return rules
}

/** `path "x" { … }`, and JSON's `"path": { "x": { … } }`, also as a list of such objects. */
function rulesOf(member: HclMember): PolicyRule[] {
  const { labels, value } = member
  if (labels.length > 1) throw at(member, 'a path block has one pattern')
  const [pattern] = labels
  if (pattern !== undefined) return [ruleOf(pattern, { ...member, labels: [] })]
  const groups = Array.isArray(value) ? value : [value]
  return groups.flatMap((group: HclValue) => {
    if (!isHclObject(group)) throw at(member, 'path must be followed by a pattern and a block')
    return group.members.flatMap((inner) => {
      if (inner.labels.length > 0) throw at(inner, 'a path block has one pattern')
      const blocks: readonly HclValue[] = Array.isArray(inner.value) ? inner.value : [inner.value]
      return blocks.map((block) => ruleOf(inner.key, { ...inner, value: block }))
    })
  })
}

function ruleOf(written: string, member: HclMember): PolicyRule {
  const pattern = patternOf(written, member)
  if (!isHclObject(member.value)) throw at(member, `path "${written}" must have a block`)
  const capabilities = new Set<Capability>()
  let granted = false
  let allowedParameters: Parameters = new Map()
  let deniedParameters: Parameters = new Map()
  let requiredParameters: readonly string[] = []
  for (const inner of member.value.members) {
    if (inner.labels.length > 0) throw at(inner, `"${inner.key}" takes no label`)
    switch (inner.key) {
      case 'capabilities':
        granted = true
        for (const word of texts(inner)) capabilities.add(capabilityOf(word, inner))
        break
      case 'policy': {
        granted = true
        const legacy = typeof inner.value === 'string' ? LEGACY.get(inner.value) : undefined
        if (!legacy) throw at(inner, 'policy must be "read", "write", "sudo" or "deny"')
        for (const capability of legacy) capabilities.add(capability)
        break
      }
      case 'allowed_parameters':
        allowedParameters = parametersOf(inner)
        break
      case 'denied_parameters':
        deniedParameters = parametersOf(inner)
        break
      case 'required_parameters':
        requiredParameters = texts(inner).map((name) => name.toLowerCase())
        break
      case 'min_wrapping_ttl':
      case 'max_wrapping_ttl':
        // To leave it out would give bare what the policy wants wrapped.
        throw at(inner, `${inner.key} is not supported: answers are not wrapped by this server`)
      case 'comment':
        break
      default:
        throw at(inner, `"${inner.key}" is not known in a path block`)
    }
  }
  if (!granted) throw at(member, `path "${written}" has no capabilities`)
  return {
    pattern,
    capabilities,
    allowedParameters,
    deniedParameters,
    requiredParameters,
  }
}

function patternOf(written: string, member: HclMember): string {
  if (written.includes('{{')) throw at(member, `path "${written}": templates ({{…}}) are not supported in paths`)
  if (written.includes('+*')) throw at(member, `path "${written}": "+*" is not a pattern`)
  if (written.slice(0, -1).includes('*')) throw at(member, `path "${written}": "*" may only stand at the end`)
  return written.replace(/^\//, '')
}

function capabilityOf(word: string, member: HclMember): Capability {
  const found = CAPABILITIES.find((capability) => capability === word)
  if (!found) throw at(member, `"${word}" is not a capability; there are ${CAPABILITIES.join(', ')}`)
  return found
}

function texts(member: HclMember): string[] {
  const { value } = member
  if (!Array.isArray(value)) throw at(member, `${member.key} must be a list of texts`)
  return value.map((item: HclValue) => {
    if (typeof item !== 'string') throw at(member, `${member.key} must be a list of texts`)
    return item
  })
}

function parametersOf(member: HclMember): Parameters {
  if (!isHclObject(member.value)) throw at(member, `${member.key} must be an object of lists`)
  const parameters = new Map<string, readonly HclValue[]>()
  for (const { key, labels, value } of member.value.members) {
    if (labels.length > 0 || !Array.isArray(value)) throw at(member, `${member.key}: "${key}" must be a list of values`)
    parameters.set(key.toLowerCase(), value)
  }
  return parameters
}

function at(member: HclMember, why: string) {
  return invalid(`policy, line ${member.line}: ${why}`)
}
