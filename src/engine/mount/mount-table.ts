import * as z from 'zod'
import { invalid, notFound } from '../../lib/errors.ts'
import { type Random, randomText } from '../../lib/random.ts'
import type { Backend, Mount } from '../backend.ts'
import { findRoute, type Place } from '../router.ts'
import { retryConflicts } from '../storage/retry.ts'
import { type Change, instantCodec, publish, put, recordKind, type Store } from '../storage/store.ts'

/**
 * Which backend stands where. The whole table is one small record, read at every request (by version: it is decoded only when it
 * changed), so that a mount made through one server is there on every other at once.
 */

const mountCodec = z.object({
  id: z.string(),
  class: z.enum(['secret', 'auth', 'system']),
  type: z.string(),
  path: z.string(),
  accessor: z.string(),
  description: z.string(),
  defaultLeaseTtlMs: z.number(),
  maxLeaseTtlMs: z.number(),
  lockout: z.object({ threshold: z.int(), durationMs: z.number(), counterResetMs: z.number(), disabled: z.boolean() }),
  listingVisibility: z.enum(['', 'hidden', 'unauth']).exactOptional(),
  tokenType: z.enum(['service', 'default-service']).exactOptional(),
  isDefault: z.boolean().exactOptional(),
  movedFrom: z.string().exactOptional(),
  owner: z.string().exactOptional(),
})
const tableKind = recordKind(
  'core/',
  z.object({
    mounts: z.array(mountCodec),
    removing: z.array(z.object({ mount: mountCodec, since: instantCodec })).exactOptional(),
  }),
)
const KEY = 'mounts'

interface Table {
  readonly mounts: readonly Mount[]
  readonly removing: readonly RetiredMount[]
}

/** A mount that nobody finds any more. */
export interface RetiredMount {
  readonly mount: Mount
  readonly since: Date
}

/** Failed logins before an account is locked, and for how long. */
export const DEFAULT_LOCKOUT = { threshold: 5, durationMs: 900_000, counterResetMs: 900_000, disabled: false }
const PROTECTED = ['sys/', 'identity/', 'cubbyhole/', 'auth/', 'token/']

export interface NewMount {
  readonly class: 'secret' | 'auth'
  readonly type: string
  /** With trailing slash, auth mounts below `auth/`. */
  readonly path: string
  readonly description?: string
  readonly defaultLeaseTtlMs?: number
  readonly maxLeaseTtlMs?: number
  readonly lockout?: Partial<Mount['lockout']>
  readonly listingVisibility?: Mount['listingVisibility']
  readonly tokenType?: Mount['tokenType']
  readonly owner?: string
}

export type MountSettings = Partial<
  Pick<
    Mount,
    'description' | 'defaultLeaseTtlMs' | 'maxLeaseTtlMs' | 'lockout' | 'listingVisibility' | 'tokenType' | 'owner'
  >
>

export class MountTable {
  readonly #store: Store
  readonly #random: Random
  /** By class and type: `secret/ldap`. */
  readonly #backends: ReadonlyMap<string, Backend>
  #known: (Table & { readonly version: number }) | undefined

  constructor(store: Store, backends: ReadonlyMap<string, Backend>, random: Random) {
    this.#store = store
    this.#backends = backends
    this.#random = random
  }

  /** Makes the table of a new store: `sys/`, `auth/token/` and the mounts that are there by default. */
  async ensure(defaults: readonly NewMount[]): Promise<void> {
    if (await this.#store.read(tableKind, KEY)) return
    const fixed: Mount[] = [
      { ...this.#entry({ class: 'auth', type: 'token', path: 'auth/token/', description: 'token based credentials' }) },
      {
        ...this.#entry({ class: 'secret', type: 'system', path: 'sys/', description: 'system endpoints' }),
        class: 'system',
        accessor: this.#accessor('system', 'system'),
      },
    ]
    const mounts = [...fixed, ...defaults.map((mount) => ({ ...this.#entry(mount), isDefault: true }))]
    await this.#store.commit([put(tableKind, KEY, { mounts }, { expected: 0 })])
  }

  async all(): Promise<readonly Mount[]> {
    return (await this.#table()).mounts
  }

  async ofType(mountClass: Mount['class'], type: string): Promise<readonly Mount[]> {
    return (await this.all()).filter((mount) => mount.class === mountClass && mount.type === type)
  }

  async byId(id: string): Promise<Mount | undefined> {
    return (await this.all()).find((mount) => mount.id === id)
  }

  async at(path: string): Promise<Mount | undefined> {
    return (await this.all()).find((mount) => mount.path === path)
  }

  backendOf(mount: Mount): Backend {
    const backend = this.#backends.get(`${mount.class}/${mount.type}`)
    if (!backend) throw notFound(`no backend serves mounts of type ${mount.type}`)
    return backend
  }

  /** Where a request goes: the longest mount path that the request's path begins with. */
  async find(path: string): Promise<Place | undefined> {
    let best: Mount | undefined
    for (const mount of await this.all()) {
      const hit = path.startsWith(mount.path) || `${path}/` === mount.path
      if (hit && mount.path.length > (best?.path.length ?? 0)) best = mount
    }
    if (!best) return undefined
    const backend = this.backendOf(best)
    const rest = path.slice(best.path.length)
    const match = findRoute(backend, rest)
    return { mount: best, backend, rest, ...(match && { match }) }
  }

  /** Adds a mount; `invalid` where the type is unknown or the path is taken or not allowed. */
  async add(mount: NewMount): Promise<Mount> {
    requireMountPath(mount)
    // There is one, made with the store.
    if (mount.type === 'token' || !this.#backends.has(`${mount.class}/${mount.type}`))
      throw invalid(
        `type: there is no ${mount.class === 'auth' ? 'auth method' : 'secrets engine'} of type "${mount.type}"`,
      )
    requireOrderedTtls(mount.defaultLeaseTtlMs ?? 0, mount.maxLeaseTtlMs ?? 0)
    const entry = this.#entry(mount)
    await this.#change(({ mounts }) => {
      requireFree(mount.path, mounts)
      return { mounts: [...mounts, entry], also: [publish({ type: 'mount-create', mount: mount.path, path: '' })] }
    })
    return entry
  }

  async tune(id: string, settings: MountSettings): Promise<void> {
    await this.#edit(id, (mount) => {
      const tuned = { ...mount, ...settings }
      requireOrderedTtls(tuned.defaultLeaseTtlMs, tuned.maxLeaseTtlMs)
      return tuned
    })
  }

  /** Leaves a mount to everybody: no resource owns it any more. */
  async disown(id: string): Promise<void> {
    await this.#edit(id, ({ owner: _, ...free }) => free)
  }

  /** Puts a mount at another path; all it owns goes with it. */
  async move(id: string, path: string): Promise<void> {
    await this.#change(({ mounts }) => {
      const others = mounts.filter((mount) => mount.id !== id)
      return {
        mounts: mounts.map((mount) => {
          if (mount.id !== id) return mount
          requireMountPath({ class: mount.class, path })
          requireFree(path, others)
          return { ...mount, path, movedFrom: mount.path }
        }),
        also: [publish({ type: 'mount-move', mount: path, path: '' })],
      }
    })
  }

  /** From here on nobody finds the mount, and its path is free. `mount-removal.ts` does the rest. */
  async retire(id: string, since: Date): Promise<void> {
    await this.#change(({ mounts, removing }) => {
      const mount = mounts.find((m) => m.id === id)
      return {
        mounts: mounts.filter((m) => m.id !== id),
        ...(mount && {
          removing: [...removing, { mount, since }],
          also: [publish({ type: 'mount-delete', mount: mount.path, path: '' })],
        }),
      }
    })
  }

  /** The mounts whose removal has not ended. */
  async retired(): Promise<readonly RetiredMount[]> {
    return (await this.#table()).removing
  }

  /** Forgets a mount that was retired. */
  async drop(id: string): Promise<void> {
    await this.#change(({ removing }) => ({ removing: removing.filter(({ mount }) => mount.id !== id) }))
  }

  async #edit(id: string, edit: (mount: Mount) => Mount): Promise<void> {
    await this.#change(({ mounts }) => ({ mounts: mounts.map((mount) => (mount.id === id ? edit(mount) : mount)) }))
  }

  async #change(edit: (table: Table) => Partial<Table> & { readonly also?: readonly Change[] }): Promise<void> {
    await retryConflicts(async () => {
      const { version, ...before } = await this.#table()
      const { also = [], ...changed } = edit(before)
      const { mounts, removing } = { ...before, ...changed }
      const table = { mounts: [...mounts], ...(removing.length > 0 && { removing: [...removing] }) }
      await this.#store.commit([put(tableKind, KEY, table, { expected: version }), ...also])
    })
  }

  async #table(): Promise<Table & { readonly version: number }> {
    const read = await this.#store.readUnless(tableKind, KEY, this.#known?.version)
    if (read === 'unchanged' && this.#known) return this.#known
    if (!read || read === 'unchanged') throw new Error('the store has no mount table')
    const { mounts, removing = [] } = read.value
    this.#known = { version: read.version, mounts, removing }
    return this.#known
  }

  #entry(mount: NewMount): Mount {
    return {
      id: this.#random.uuid(),
      class: mount.class,
      type: mount.type,
      path: mount.path,
      accessor: this.#accessor(mount.class, mount.type),
      description: mount.description ?? '',
      defaultLeaseTtlMs: mount.defaultLeaseTtlMs ?? 0,
      maxLeaseTtlMs: mount.maxLeaseTtlMs ?? 0,
      lockout: { ...DEFAULT_LOCKOUT, ...mount.lockout },
      ...(mount.listingVisibility !== undefined && { listingVisibility: mount.listingVisibility }),
      ...(mount.tokenType !== undefined && { tokenType: mount.tokenType }),
      ...(mount.owner !== undefined && { owner: mount.owner }),
    }
  }

  #accessor(mountClass: Mount['class'], type: string): string {
    const prefix = mountClass === 'auth' ? `auth_${type}` : type
    return `${prefix}_${randomText(this.#random, 8, '0123456789abcdef')}`
  }
}

const PATH_LIMIT = 253

/** Throws `invalid` for a path that policies could not name, that is read differently in different places, or that is not for mounts. */
function requireMountPath({ class: mountClass, path }: Pick<Mount, 'class' | 'path'>): void {
  const segments = path.slice(0, -1).split('/')
  if (
    path.length > PATH_LIMIT ||
    segments.some((segment) => ['', '.', '..'].includes(segment) || /[\s*+]/.test(segment))
  )
    throw invalid(
      `path: it must be at most ${PATH_LIMIT} characters, in segments that are not empty, without spaces, "*" and "+"`,
    )
  if (mountClass === 'secret' && PROTECTED.some((place) => path.startsWith(place)))
    throw invalid(`path: mounts below ${path} are not allowed`)
}

function requireFree(path: string, mounts: readonly Mount[]): void {
  const taken = mounts.find((mount) => mount.path.startsWith(path) || path.startsWith(mount.path))
  if (taken) throw invalid(`path is already in use at ${taken.path}`)
}

function requireOrderedTtls(defaultMs: number, maxMs: number): void {
  if (maxMs > 0 && defaultMs > maxMs) throw invalid('default_lease_ttl must not be greater than max_lease_ttl')
}
