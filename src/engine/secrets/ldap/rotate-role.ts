import { AppError, invalid } from '../../../lib/errors.ts'
import type { AccountTurner } from '../../account/turn.ts'
import { type Route, route } from '../../backend.ts'
import type { Store } from '../../storage/store.ts'
import { isForCaller } from './ownership.ts'
import { foldRoleName } from './role-name.ts'
import { readRole } from './static-role.ts'
import { type StaticRoleHostDeps, staticRoleHost } from './static-role-host.ts'

/** `rotate-role/:name`: turns the password of a static role now. Whoever asks while it is being turned shares the result. */
export function rotateRoleRoute(
  deps: StaticRoleHostDeps & { store: Store; turner: AccountTurner; wake: () => void },
): Route {
  return route({
    pattern: 'rotate-role/:name+',
    sameName: foldRoleName,
    async write({ mount, params, caller, signal }) {
      const name = foldRoleName(params['name'] ?? '')
      const stored = await readRole(deps.store, mount.id, name)
      if (!stored || !isForCaller(stored.value, caller)) throw invalid("role doesn't exist")
      try {
        await deps.turner.turn(staticRoleHost(deps, mount, name), 'manual', signal)
      } catch (error) {
        // It was deleted meanwhile.
        if (error instanceof AppError && error.kind === 'not-found')
          throw invalid("role doesn't exist", { cause: error })
        throw error
      } finally {
        deps.wake()
      }
      return undefined
    },
  })
}
