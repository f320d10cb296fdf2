import * as z from 'zod'
import { integer, text } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import { type Route, route } from '../../backend.ts'
import type { TokenService } from '../../token/token-service.ts'

const MOST = 10_000
const body = wire(z.object({ after: text(64), limit: integer({ min: 1, max: MOST }) }))

/** LIST `accessors`: a page of the accessors of all tokens, in order; `after` is the last one seen. */
export function accessorRoutes({ tokens }: { readonly tokens: TokenService }): Route[] {
  return [
    route({
      pattern: 'accessors',
      sudo: true,
      body,
      async list(call) {
        const { after, limit = 1000 } = call.fields
        const found = await tokens.accessors({ limit: limit + 1, ...(after !== undefined && { after }) })
        const keys = found.slice(0, limit)
        if (found.length > limit) call.warn(`there are more accessors; ask again with after=${keys.at(-1) ?? ''}`)
        return { shape: 'listing', keys }
      },
    }),
  ]
}
