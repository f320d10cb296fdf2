import * as z from 'zod'
import { invalid } from '../../../lib/errors.ts'
import { duration, flag, integer, names, secretText, text, textMap } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import { type Call, type Route, route } from '../../backend.ts'
import type { PolicyService } from '../../policy/policy-service.ts'
import type { TokenService, TokenWish } from '../../token/token-service.ts'

const fields = z.object({
  id: secretText(256),
  policies: names(256),
  meta: textMap(4096),
  noParent: flag(),
  noDefaultPolicy: flag(),
  ttl: duration(),
  explicitMaxTtl: duration(),
  period: duration(),
  displayName: text(256),
  numUses: integer({ min: 0, max: 1_000_000_000 }),
  renewable: flag(),
  type: text(32),
  entityAlias: text(256),
})
type Fields = z.output<typeof fields>
const body = wire(fields)

/** `create` and `create-orphan`: a token made from the caller's own. */
export function createRoutes({
  tokens,
  policies,
}: {
  readonly tokens: TokenService
  readonly policies: PolicyService
}): Route[] {
  const routeOf = (pattern: string, alwaysOrphan: boolean) =>
    route({
      pattern,
      body,
      async write(call) {
        const path = `${call.mount.path}${pattern}`
        const held = await policies.capabilities(call.caller.policies, path)
        const isTrusted = held.includes('sudo') || held.includes('root')
        const wish = wishOf(call, path, { isTrusted, alwaysOrphan })
        const { auth, warnings } = await tokens.create(call.caller.tokenKey, wish, call.mount, path)
        for (const warning of warnings) call.warn(warning)
        return { auth }
      },
    })
  return [routeOf('create', false), routeOf('create-orphan', true)]
}

function wishOf(
  { fields: asked }: Call<Fields>,
  path: string,
  { isTrusted, alwaysOrphan }: { readonly isTrusted: boolean; readonly alwaysOrphan: boolean },
): TokenWish {
  const { type = '', id } = asked
  if (type !== '' && type !== 'service' && type !== 'default') throw invalid('type must be "service"')
  if (asked.entityAlias) throw invalid('entity_alias needs a token role, and there are none')
  const needsSudo = [
    id && !id.isEmpty && 'id',
    !alwaysOrphan && asked.noParent && 'no_parent',
    asked.period && 'period',
  ].find((field) => typeof field === 'string')
  if (needsSudo && !isTrusted) throw invalid(`${needsSudo} needs the sudo capability on ${path}`)
  if (id && !id.isEmpty && !/^[\x21-\x7e]+$/.test(id.reveal())) throw invalid('id must be printable and without spaces')
  return {
    ...(id && !id.isEmpty && { id }),
    policies: asked.policies ?? [],
    anyPolicies: isTrusted,
    noDefaultPolicy: asked.noDefaultPolicy ?? false,
    orphan: alwaysOrphan || (asked.noParent ?? false),
    metadata: asked.meta ?? {},
    displayName: asked.displayName ?? '',
    ttlMs: asked.ttl ?? 0,
    explicitMaxTtlMs: asked.explicitMaxTtl ?? 0,
    periodMs: asked.period ?? 0,
    numUses: asked.numUses ?? 0,
    renewable: asked.renewable ?? true,
  }
}
