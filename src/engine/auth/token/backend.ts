import type { Clock } from '../../../lib/clock.ts'
import type { Backend } from '../../backend.ts'
import type { PolicyService } from '../../policy/policy-service.ts'
import type { TokenService } from '../../token/token-service.ts'
import { accessorRoutes } from './accessors.ts'
import { createRoutes } from './create.ts'
import { lookupRoutes } from './lookup.ts'
import { renewRoutes } from './renew.ts'
import { revokeRoutes } from './revoke.ts'

export interface TokenBackendDeps {
  readonly tokens: TokenService
  readonly policies: PolicyService
  readonly clock: Clock
}

/** `auth/token/*`: what can be asked of tokens. How they live and end is `engine/token`. */
export function createTokenBackend(deps: TokenBackendDeps): Backend {
  return {
    type: 'token',
    routes: [
      ...createRoutes(deps),
      ...lookupRoutes(deps),
      ...renewRoutes(deps),
      ...revokeRoutes(deps),
      ...accessorRoutes(deps),
    ],
  }
}
