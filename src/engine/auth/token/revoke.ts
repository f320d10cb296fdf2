import * as z from 'zod'
import { invalid } from '../../../lib/errors.ts'
import { secretText, text } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import { type Route, route } from '../../backend.ts'
import type { TokenService } from '../../token/token-service.ts'

const byToken = wire(z.object({ token: secretText(512) }))
const byAccessor = wire(z.object({ accessor: text(64) }))

/**
 * `revoke`, `revoke-self`, `revoke-accessor` and `revoke-orphan`. What is dead already is no error; while somebody else is at it, it is waited
 * for.
 */
export function revokeRoutes({ tokens }: { readonly tokens: TokenService }): Route[] {
  return [
    route({
      pattern: 'revoke-self',
      async write({ caller }) {
        await tokens.revokeTree(caller.tokenKey)
        return undefined
      },
    }),
    route({
      pattern: 'revoke',
      body: byToken,
      async write({ fields: { token } }) {
        if (!token || token.isEmpty) throw invalid('token must be given')
        await tokens.revokeTree(tokens.keyOf(token))
        return undefined
      },
    }),
    route({
      pattern: 'revoke-accessor',
      body: byAccessor,
      async write({ fields: { accessor } }) {
        if (!accessor) throw invalid('accessor must be given')
        const key = await tokens.keyByAccessor(accessor)
        if (key !== undefined) await tokens.revokeTree(key)
        return undefined
      },
    }),
    route({
      pattern: 'revoke-orphan',
      sudo: true,
      body: byToken,
      async write({ fields: { token } }) {
        if (!token || token.isEmpty) throw invalid('token must be given')
        await tokens.revokeOrphaning(tokens.keyOf(token))
        return undefined
      },
    }),
  ]
}
