import * as z from 'zod'
import type { Secret } from '../../../lib/secret.ts'
import { duration, secretText, text } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import { type Call, type Reply, type Route, route } from '../../backend.ts'
import type { LiveToken, TokenService } from '../../token/token-service.ts'
import { requireAccessor, requireOwn, requireToken } from './named.ts'

const increment = duration()

/** `renew`, `renew-self` and `renew-accessor`. */
export function renewRoutes({ tokens }: { readonly tokens: TokenService }): Route[] {
  const renew = async (
    call: Call<{ increment: number }>,
    live: LiveToken,
    token: Secret | undefined,
  ): Promise<Reply> => {
    const { mount, signal } = call
    const incrementMs = call.fields.increment ?? 0
    const { auth, warnings } = await tokens.renew(live, { incrementMs, token, mount, signal })
    for (const warning of warnings) call.warn(warning)
    return { auth }
  }

  return [
    route({
      pattern: 'renew-self',
      body: wire(z.object({ increment })),
      write: async (call) => renew(call, await requireOwn(tokens, call.caller.tokenKey), call.caller.token),
    }),
    route({
      pattern: 'renew',
      body: wire(z.object({ token: secretText(512), increment })),
      write: async (call) => renew(call, await requireToken(tokens, call.fields.token), call.fields.token),
    }),
    route({
      pattern: 'renew-accessor',
      body: wire(z.object({ accessor: text(64), increment })),
      write: async (call) => renew(call, await requireAccessor(tokens, call.fields.accessor), undefined),
    }),
  ]
}
