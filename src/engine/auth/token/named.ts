import { denied, invalid } from '../../../lib/errors.ts'
import type { Secret } from '../../../lib/secret.ts'
import type { LiveToken, TokenService } from '../../token/token-service.ts'

/** The live token named in a request's `token` field; `denied` with the fragment that clients look for where there is none. */
export async function requireToken(tokens: TokenService, token: Secret | undefined): Promise<LiveToken> {
  if (!token || token.isEmpty) throw invalid('token must be given')
  const live = await tokens.lookup(token)
  if (!live) throw denied('bad token')
  return live
}

/** The live token named by its accessor. */
export async function requireAccessor(tokens: TokenService, accessor: string | undefined): Promise<LiveToken> {
  if (!accessor) throw invalid('accessor must be given')
  const live = await tokens.findByAccessor(accessor)
  if (!live) throw denied('invalid accessor')
  return live
}

/** The token of the request itself, also in its last use. */
export async function requireOwn(tokens: TokenService, key: string): Promise<LiveToken> {
  const live = await tokens.find(key)
  if (!live) throw denied('bad token')
  return live
}
