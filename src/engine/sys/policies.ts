import * as z from 'zod'
import { invalid } from '../../lib/errors.ts'
import { text } from '../../schema/fields.ts'
import { wire } from '../../schema/wire.ts'
import { type Handler, type Route, route } from '../backend.ts'
import { type PolicyService, policyName } from '../policy/policy-service.ts'

// More than a policy may have, so that the policy's own message about size is the one that is seen.
const fields = z.object({ policy: text(1_000_000), rules: text(1_000_000) })
type Fields = z.output<typeof fields>
const body = wire(fields)

/** `sys/policies/acl` and its older spelling `sys/policy`. */
export function policyRoutes({ policies }: { readonly policies: PolicyService }): Route[] {
  const nameOf = (call: { readonly params: Readonly<Record<string, string>> }) => call.params['name'] ?? ''

  const write: Handler<Fields> = async (call) => {
    const given = call.fields.policy ?? call.fields.rules
    if (given === undefined || given.trim() === '') throw invalid('policy must not be empty')
    await policies.put(nameOf(call), given, call.caller)
    return undefined
  }
  const erase: Handler<Fields> = async (call) => {
    await policies.delete(nameOf(call), call.caller)
    return undefined
  }
  const legacyList: Handler<unknown> = async () => {
    const keys = await policies.list()
    return { shape: 'flat', data: { keys, policies: keys } }
  }

  return [
    route({
      pattern: 'policies/acl',
      async list() {
        return { shape: 'listing', keys: await policies.list() }
      },
    }),
    route({
      pattern: 'policies/acl/:name+',
      sameName: policyName,
      body,
      async read(call) {
        const found = await policies.read(nameOf(call))
        if (!found) return undefined
        return { shape: 'flat', data: { name: found.name, policy: found.text, owner: found.owner ?? '' } }
      },
      write,
      delete: erase,
    }),
    route({ pattern: 'policy', read: legacyList, list: legacyList }),
    route({
      pattern: 'policy/:name+',
      sameName: policyName,
      body,
      async read(call) {
        const found = await policies.read(nameOf(call))
        return found && { shape: 'flat', data: { name: found.name, rules: found.text } }
      },
      write,
      delete: erase,
    }),
  ]
}
