import * as z from 'zod'
import { denied, invalid } from '../../lib/errors.ts'
import { names, secretText, text } from '../../schema/fields.ts'
import { wire } from '../../schema/wire.ts'
import { type Reply, type Route, route } from '../backend.ts'
import type { PolicyService } from '../policy/policy-service.ts'
import type { TokenService } from '../token/token-service.ts'

const fields = z.object({ paths: names(4096), path: names(4096), token: secretText(512), accessor: text(64) })
const body = wire(fields)

/** `sys/capabilities-self`, `-accessor` and `sys/capabilities`: what a token may do at some paths. */
export function capabilityRoutes({
  policies,
  tokens,
}: {
  readonly policies: PolicyService
  readonly tokens: TokenService
}): Route[] {
  const answer = async (held: readonly string[], asked: Partial<z.output<typeof fields>>): Promise<Reply> => {
    const paths = asked.paths ?? asked.path ?? []
    const [first] = paths
    if (first === undefined) throw invalid('paths must be given')
    const each = await Promise.all(paths.map(async (path) => [path, await policies.capabilities(held, path)] as const))
    const data = Object.fromEntries(each)
    return { shape: 'flat', data: { ...data, capabilities: data[first] ?? ['deny'] } }
  }

  return [
    route({
      pattern: 'capabilities-self',
      body,
      write: ({ caller, fields: asked }) => answer(caller.policies, asked),
    }),
    route({
      pattern: 'capabilities',
      body,
      async write({ fields: asked }) {
        if (!asked.token) throw invalid('token must be given')
        const live = await tokens.lookup(asked.token)
        if (!live) throw denied('bad token')
        return answer(live.record.policies, asked)
      },
    }),
    route({
      pattern: 'capabilities-accessor',
      body,
      async write({ fields: asked }) {
        if (!asked.accessor) throw invalid('accessor must be given')
        const live = await tokens.findByAccessor(asked.accessor)
        if (!live) throw denied('invalid accessor')
        return answer(live.record.policies, asked)
      },
    }),
  ]
}
