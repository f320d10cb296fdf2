import * as z from 'zod'
import { invalid } from '../../lib/errors.ts'
import type { Values } from '../../schema/answer.ts'
import { text } from '../../schema/fields.ts'
import { wire } from '../../schema/wire.ts'
import { type Mount, type Route, route } from '../backend.ts'
import type { MountTable } from '../mount/mount-table.ts'
import { requireWritable } from '../tenancy/owner.ts'

const body = wire(z.object({ from: text(512), to: text(512) }))

/**
 * `POST sys/remount`: puts a mount at another path. It is done when it is answered, for what a mount owns is kept under its id; the id of the
 * migration that clients ask about afterwards is that of the mount.
 */
export function remountRoutes(table: () => MountTable): Route[] {
  return [
    route({
      pattern: 'remount',
      sudo: true,
      body,
      async write({ fields: { from = '', to = '' }, caller }) {
        const [source, target] = [pathOf(from, 'from'), pathOf(to, 'to')]
        const mount = await table().at(source)
        if (!mount) throw invalid(`from: no mount at ${source}`)
        if (mount.class === 'system' || mount.type === 'token')
          throw invalid(`from: the mount ${source} cannot be moved`)
        if ((mount.class === 'auth') !== target.startsWith('auth/'))
          throw invalid('to: an auth mount stays below auth/, and nothing else goes there')
        requireWritable(mount.owner, caller, `the mount ${source}`)
        await table().move(mount.id, target)
        return { shape: 'flat', data: { migration_id: mount.id } }
      },
    }),
    route({
      pattern: 'remount/status/:id',
      async read({ params }) {
        const mount = await table().byId(params['id'] ?? '')
        return mount?.movedFrom === undefined ? undefined : { shape: 'flat', data: migration(mount, mount.movedFrom) }
      },
    }),
  ]
}

function migration(mount: Mount, source: string): Values {
  return {
    migration_id: mount.id,
    migration_info: { source_mount: source, target_mount: mount.path, status: 'success' },
  }
}

function pathOf(given: string, field: string): string {
  const path = given.replace(/^\/+|\/+$/g, '')
  if (path === '') throw invalid(`${field} must be the path of a mount`)
  return `${path}/`
}
