import * as z from 'zod'
import { invalid } from '../../lib/errors.ts'
import type { Caller } from '../backend.ts'
import type { Operation } from '../request.ts'
import { VersionConflict } from '../storage/driver.ts'
import { put, recordKind, remove, type Store } from '../storage/store.ts'
import { requireWritable } from '../tenancy/owner.ts'
import { type CompiledPolicy, compilePolicy, grantFor, permits } from './acl.ts'
import { CONTROLLER_POLICY, CONTROLLER_POLICY_TEXT, DEFAULT_POLICY } from './built-in.ts'
import type { Meaning } from './parameters.ts'
import { parsePolicy, plainPolicyText } from './policy-text.ts'

/**
 * Policies: kept as the text that was written, and what they say about a request. Each decision reads the policies of the token from
 * the store, so that a change holds at once and on every server; only the parsed form of a version is remembered.
 */

/** What `decide` has to know of a request. */
interface PolicyRequest {
  readonly path: string
  /** Another path of the same object: what a policy says about it holds too. */
  readonly alias?: string
  readonly operation: Operation
  /** Asked only where the answer depends on it. */
  readonly exists: () => Promise<boolean>
  readonly fields: Readonly<Record<string, unknown>>
  readonly meaning?: Meaning
  readonly needsSudo: boolean
}

export interface PolicyService {
  /** One answer for one request of a caller with these policies. */
  decide(policies: readonly string[], request: PolicyRequest): Promise<{ allowed: boolean; isRoot: boolean }>
  /** What these policies allow on a path: sorted, `["root"]`, or `["deny"]` for nothing. */
  capabilities(policies: readonly string[], path: string): Promise<string[]>
  /** Names, sorted, with `default` and `root`. */
  list(): Promise<string[]>
  read(name: string): Promise<{ name: string; text: string; owner?: string } | undefined>
  /** Writes a policy given as HCL, JSON or base64 of either; `invalid` with the line of the first fault. */
  put(name: string, text: string, caller: Caller): Promise<void>
  /** Removes a policy; one that is absent is fine. */
  delete(name: string, caller: Caller): Promise<void>
}

const policyKind = recordKind(
  'policy/',
  z.object({ name: z.string(), text: z.string(), owner: z.string().exactOptional() }),
)

/** Names that no operator's policy may have. */
const FIXED = new Set(['root', 'response-wrapping', CONTROLLER_POLICY])
const MOST_REMEMBERED = 1000
// The version of a built-in text; those of records are above 0.
const BUILT_IN = 0

/** Policy names are one for all spellings: trimmed and in lower case. */
export function policyName(name: string): string {
  return name.trim().toLowerCase()
}

/** The policies of a store. */
export function createPolicyService({ store }: { readonly store: Store }): PolicyService {
  const remembered = new Map<string, { readonly version: number; readonly policy: CompiledPolicy }>()

  const remember = (name: string, version: number, text: string): CompiledPolicy => {
    const policy = compilePolicy(parsePolicy(text))
    remembered.delete(name)
    remembered.set(name, { version, policy })
    for (const oldest of remembered.keys()) {
      if (remembered.size <= MOST_REMEMBERED) break
      remembered.delete(oldest)
    }
    return policy
  }

  const compiled = async (name: string): Promise<CompiledPolicy | undefined> => {
    const known = remembered.get(name)
    if (name === CONTROLLER_POLICY) return known?.policy ?? remember(name, BUILT_IN, CONTROLLER_POLICY_TEXT)
    const stored = await store.readUnless(policyKind, name, known?.version)
    if (stored === 'unchanged') return known?.policy
    if (stored) return remember(name, stored.version, stored.value.text)
    if (name !== 'default') return undefined
    return known?.version === BUILT_IN ? known.policy : remember(name, BUILT_IN, DEFAULT_POLICY)
  }

  const allOf = async (names: readonly string[]): Promise<CompiledPolicy[]> =>
    (await Promise.all(names.map(compiled))).filter((policy) => policy !== undefined)

  return {
    async decide(policies, request) {
      if (policies.includes('root')) return { allowed: true, isRoot: true }
      const compiledPolicies = await allOf(policies)
      const isList = request.operation === 'list'
      const grant = grantFor(compiledPolicies, request.path, isList)
      const other = request.alias === undefined ? undefined : grantFor(compiledPolicies, request.alias, isList)
      const allowed = (await permits(grant, request)) && (!other || (await permits(other, request)))
      return { allowed, isRoot: false }
    },

    async capabilities(policies, path) {
      if (policies.includes('root')) return ['root']
      const granted = grantFor(await allOf(policies), path.replace(/^\//, ''))?.capabilities
      if (!granted || granted.size === 0 || granted.has('deny')) return ['deny']
      return [...granted].sort()
    },

    async list() {
      const names = new Set(['default', 'root'])
      for (let after: string | undefined; ; ) {
        const page = await store.keys(policyKind, '', { limit: 500, ...(after !== undefined && { after }) })
        for (const key of page) names.add(key)
        after = page.at(-1)
        if (after === undefined) return [...names].sort()
      }
    },

    async read(name) {
      const key = policyName(name)
      if (key === 'root') return { name: key, text: '' }
      const stored = await store.read(policyKind, key)
      if (stored) return stored.value
      return key === 'default' ? { name: key, text: DEFAULT_POLICY } : undefined
    },

    async put(name, given, caller) {
      const key = requireName(name)
      const text = plainPolicyText(given)
      parsePolicy(text)
      for (;;) {
        const stored = await store.read(policyKind, key)
        requireWritable(stored?.value.owner, caller, `the policy ${key}`)
        const owner = caller.owner
        const value = { name: key, text, ...(owner !== undefined && { owner }) }
        try {
          await store.commit([put(policyKind, key, value, { expected: stored?.version ?? 0 })])
          return
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
        }
      }
    },

    async delete(name, caller) {
      const key = policyName(name)
      if (FIXED.has(key) || key === 'default') throw invalid(`the policy "${key}" cannot be deleted`)
      for (;;) {
        const stored = await store.read(policyKind, key)
        if (!stored) return
        requireWritable(stored.value.owner, caller, `the policy ${key}`)
        try {
          await store.commit([remove(policyKind, key, { expected: stored.version })])
          return
        } catch (error) {
          if (!(error instanceof VersionConflict)) throw error
        }
      }
    },
  }
}

function requireName(name: string): string {
  const key = policyName(name)
  if (FIXED.has(key)) throw invalid(`name: the policy "${key}" cannot be changed`)
  if (key === '' || key.length > 256 || /[\s,\p{Cc}]/u.test(key))
    throw invalid('name must be 1 to 256 characters without spaces and commas')
  return key
}
