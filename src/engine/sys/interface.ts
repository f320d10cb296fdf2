import { notFound } from '../../lib/errors.ts'
import { type Route, route } from '../backend.ts'
import type { MountTable } from '../mount/mount-table.ts'
import { describe } from './mount-settings.ts'

/** `sys/internal/ui/mounts`: what command lines and browsers ask before they guess at a path. Without a token only what is listed for everybody. */
export function interfaceRoutes(table: () => MountTable): Route[] {
  return [
    route({
      pattern: 'internal/ui/mounts/:path+',
      async read(call) {
        const wanted = `${(call.params['path'] ?? '').replace(/\/+$/, '')}/`
        const mount = (await table().all()).find((m) => wanted.startsWith(m.path))
        if (!mount) throw notFound(`no mount at ${wanted}`)
        return { shape: 'envelope', data: { ...describe(mount), path: mount.path } }
      },
    }),
    route({
      pattern: 'internal/ui/mounts',
      anonymous: 'allowed',
      async read({ caller }) {
        const isKnown = caller.tokenKey !== ''
        const shown = (await table().all()).filter((mount) => isKnown || mount.listingVisibility === 'unauth')
        const entries = (auth: boolean) =>
          Object.fromEntries(
            shown
              .filter((mount) => (mount.class === 'auth') === auth)
              .map((mount) => [auth ? mount.path.slice('auth/'.length) : mount.path, describe(mount)]),
          )
        return { shape: 'envelope', data: { auth: entries(true), secret: entries(false) } }
      },
    }),
  ]
}
