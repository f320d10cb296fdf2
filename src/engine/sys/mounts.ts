import { invalid } from '../../lib/errors.ts'
import type { Values } from '../../schema/answer.ts'
import { type Call, type Caller, type Mount, type Reply, type Route, route } from '../backend.ts'
import type { MountRemoval } from '../mount/mount-removal.ts'
import type { MountTable } from '../mount/mount-table.ts'
import { requireWritable } from '../tenancy/owner.ts'
import { describe, isUntouched, mountBody, tuneBody, tuned, tuning } from './mount-settings.ts'

/** `sys/mounts` and `sys/auth`: what stands where. The same code serves both; auth mounts live below `auth/`. */

export function mountRoutes(mounts: () => MountTable, removal: Pick<MountRemoval, 'remove'>): Route[] {
  return [...routesOf('secret', mounts, removal), ...routesOf('auth', mounts, removal)]
}

function routesOf(kind: 'secret' | 'auth', table: () => MountTable, { remove }: Pick<MountRemoval, 'remove'>): Route[] {
  const base = kind === 'auth' ? 'auth' : 'mounts'
  const sudo = kind === 'auth'
  const fullPath = (name: string) => `${kind === 'auth' ? 'auth/' : ''}${withoutSlash(name)}/`
  const shown = (mount: Mount) => (kind === 'auth' ? mount.path.slice('auth/'.length) : mount.path)
  const mine = (mount: Mount) => (mount.class === 'auth') === (kind === 'auth')

  const list = async ({ caller }: Pick<Call, 'caller'>): Promise<Reply> => {
    const all = (await table().all()).filter(mine)
    const rows = all.map((mount) => [shown(mount), { ...describe(mount), ...owned(mount, caller) }])
    return { shape: 'flat', data: Object.fromEntries(rows) }
  }
  const find = async (call: Call<unknown>) => table().at(fullPath(call.params['path'] ?? ''))
  const require = async (call: Call<unknown>) => {
    const mount = await find(call)
    // An auth mount is reached below sys/auth only, where `sudo` is asked for.
    if (!mount || !mine(mount)) throw invalid(`no mount at ${fullPath(call.params['path'] ?? '')}`)
    return mount
  }

  return [
    route({ pattern: base, read: list, list }),
    route({
      pattern: `${base}/:path+/tune`,
      sameName: withoutSlash,
      sudo,
      body: tuneBody,
      async read(call) {
        return { shape: 'flat', data: tuning(await require(call)) }
      },
      async write(call) {
        const mount = await require(call)
        requireWritable(mount.owner, call.caller, `the mount ${mount.path}`)
        await table().tune(mount.id, tuned(kind, mount, call.fields))
        return undefined
      },
    }),
    route({
      pattern: `${base}/:path+`,
      sameName: withoutSlash,
      sudo,
      body: mountBody,
      async read(call) {
        const mount = await require(call)
        return { shape: 'flat', data: describe(mount) }
      },
      async write(call) {
        if (call.fields.disown) {
          if (!call.caller.isController) throw invalid('disown: only the controller may set it')
          const owned = await require(call)
          requireWritable(owned.owner, call.caller, `the mount ${owned.path}`)
          await table().disown(owned.id)
          return undefined
        }
        const type = synonym(call.fields.type ?? '')
        if (type === '') throw invalid('type is required')
        const path = fullPath(call.params['path'] ?? '')
        const existing = await table().at(path)
        const owner = call.caller.owner
        const wanted = tuned(kind, existing, call.fields)
        // The mounts of the first start may be enabled as if they were not there; a resource takes its own or an unowned one over.
        const isFree = async (mount: Mount) =>
          owner !== undefined || (isUntouched(mount) && !(await table().backendOf(mount).isConfigured?.(mount)))
        if (existing && mine(existing) && existing.type === type && (await isFree(existing))) {
          requireWritable(existing.owner, call.caller, `the mount ${path}`)
          await table().tune(existing.id, { ...wanted, ...(owner !== undefined && { owner }) })
        } else {
          await table().add({ class: kind, type, path, ...wanted, ...(owner !== undefined && { owner }) })
        }
        return undefined
      },
      async delete(call) {
        const mount = await find(call)
        if (!mount) return undefined
        // Only there `sudo` is asked for.
        if (!mine(mount)) throw invalid(`the mount ${mount.path} can only be removed at sys/auth`)
        requireWritable(mount.owner, call.caller, `the mount ${mount.path}`)
        if (mount.class === 'system' || mount.type === 'token')
          throw invalid(`the mount ${mount.path} cannot be removed`)
        await remove(mount, call.signal)
        return undefined
      },
    }),
  ]
}

/** Whose it is, for the controller. */
function owned({ owner }: Mount, { isController }: Caller): Values {
  return isController && owner !== undefined ? { owner } : {}
}

function withoutSlash(path: string): string {
  return path.replace(/\/+$/, '')
}

function synonym(type: string): string {
  return type === 'openldap' ? 'ldap' : type
}
