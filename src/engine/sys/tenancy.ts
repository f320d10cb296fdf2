import { denied, invalid } from '../../lib/errors.ts'
import { type Call, type Route, route } from '../backend.ts'
import type { MountTable } from '../mount/mount-table.ts'
import { publish, type Store } from '../storage/store.ts'
import { readTenancy, tenancyBody, tenancyValues, writeTenancy } from '../tenancy/table.ts'

/** `sys/tenancy/<mount>`: which tenants may have which roles on a secrets mount. Only the controller speaks for tenants, so only it may. */
export function tenancyRoutes(deps: { readonly mounts: () => MountTable; readonly store: Store }): Route[] {
  const require = async ({ caller, params }: Pick<Call, 'caller' | 'params'>) => {
    if (!caller.isController) throw denied()
    const path = `${(params['mount'] ?? '').replace(/\/+$/, '')}/`
    const mount = await deps.mounts().at(path)
    if (mount?.class !== 'secret') throw invalid(`mount: no secrets engine at ${path}`)
    return mount
  }
  return [
    route({
      pattern: 'tenancy/:mount+',
      body: tenancyBody,
      async read(call) {
        const mount = await require(call)
        return { shape: 'envelope', data: tenancyValues(await readTenancy(deps.store, mount.id)) }
      },
      async write(call) {
        const mount = await require(call)
        const { entries } = call.fields
        if (!entries) throw invalid('entries is required; an empty list lets no tenant in')
        await deps.store.commit([
          writeTenancy(mount.id, { entries }),
          publish({ type: 'tenancy-write', mount: mount.path, path: '' }),
        ])
        return undefined
      },
    }),
  ]
}
