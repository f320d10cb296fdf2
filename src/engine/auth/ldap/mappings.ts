import * as z from 'zod'
import { invalid, unsupported } from '../../../lib/errors.ts'
import { flag, names } from '../../../schema/fields.ts'
import { normalizePolicies } from '../../../schema/token-fields.ts'
import { wire } from '../../../schema/wire.ts'
import { type Call, type Route, route } from '../../backend.ts'
import { retryConflicts } from '../../storage/retry.ts'
import { publish, put, remove, type Store } from '../../storage/store.ts'
import { requireWritable } from '../../tenancy/owner.ts'
import { nameKey } from './names.ts'
import { configKind, groupKind, userKind } from './records.ts'

/** `groups/:name` and `users/:username`: which policies a directory group or a user brings (SPECIFICATION 4.2). */

const groupBody = wire(z.object({ policies: names(512), adopt: flag() }))
const userBody = wire(z.object({ policies: names(512), groups: names(512), adopt: flag() }))

const LIST_PAGE = 1000
const NAME_LIMIT = 512

export function groupRoutes({ store }: { readonly store: Store }): Route[] {
  return [
    route({
      pattern: 'groups/:name*',
      sameName,
      body: groupBody,
      list: (call) => listed(store, groupKind, call),
      async read(call) {
        const found = await store.read(groupKind, await keyOf(store, call))
        if (!found) return undefined
        const { policies, owner } = found.value
        return { shape: 'envelope', data: { policies, ...(owner !== undefined && { owner }) } }
      },
      write: (call) =>
        retryConflicts(async () => {
          const key = await keyOf(store, call)
          const found = await store.read(groupKind, key)
          const owner = takeOver(found?.value.owner, found !== undefined, call, `the group ${call.params['name']}`)
          const value = { policies: normalizePolicies(call.fields.policies ?? []), ...(owner && { owner }) }
          await store.commit([
            put(groupKind, key, value, { expected: found?.version ?? 0 }),
            publish({
              type: 'group-write',
              mount: call.mount.path,
              path: `groups/${call.params['name']}`,
              ...(owner && { owner }),
            }),
          ])
          return undefined
        }),
      delete: (call) => deleted(store, groupKind, call, `the group ${call.params['name']}`),
    }),
  ]
}

export function userRoutes({ store }: { readonly store: Store }): Route[] {
  return [
    route({
      pattern: 'users/:name*',
      sameName,
      body: userBody,
      list: (call) => listed(store, userKind, call),
      async read(call) {
        const found = await store.read(userKind, await keyOf(store, call))
        if (!found) return undefined
        const { policies, groups, owner } = found.value
        return {
          shape: 'envelope',
          data: { policies, groups: groups.join(','), ...(owner !== undefined && { owner }) },
        }
      },
      write: (call) =>
        retryConflicts(async () => {
          const key = await keyOf(store, call)
          const found = await store.read(userKind, key)
          const owner = takeOver(found?.value.owner, found !== undefined, call, `the user ${call.params['name']}`)
          const config = (await store.read(configKind, call.mount.id))?.value
          const groups = (call.fields.groups ?? []).map((name) =>
            nameKey(name, { caseSensitiveNames: config?.caseSensitiveNames ?? false }),
          )
          const value = {
            policies: normalizePolicies(call.fields.policies ?? []),
            groups: [...new Set(groups.filter((name) => name !== ''))],
            ...(owner && { owner }),
          }
          await store.commit([
            put(userKind, key, value, { expected: found?.version ?? 0 }),
            publish({
              type: 'user-write',
              mount: call.mount.path,
              path: `users/${call.params['name']}`,
              ...(owner && { owner }),
            }),
          ])
          return undefined
        }),
      delete: (call) => deleted(store, userKind, call, `the user ${call.params['name']}`),
    }),
  ]
}

/** Where names are told apart by case this is stricter than it must be: a policy about the one holds for the other too. */
const sameName = (name: string) => nameKey(name, { caseSensitiveNames: false })

type Kind = typeof groupKind | typeof userKind
type AnyCall = Pick<Call<unknown>, 'mount' | 'params' | 'caller'>

async function keyOf(store: Store, call: AnyCall): Promise<string> {
  const config = (await store.read(configKind, call.mount.id))?.value
  const given = call.params['name'] ?? ''
  // Without a name there is only the list.
  if (given === '') throw unsupported()
  const name = nameKey(given, { caseSensitiveNames: config?.caseSensitiveNames ?? false })
  if (name === '' || given.trim().length > NAME_LIMIT) throw invalid(`name must be 1 to ${NAME_LIMIT} characters`)
  return `${call.mount.id}/${name}`
}

/** Names with slashes are names, not folders: the list is flat. */
async function listed(store: Store, kind: Kind, { mount, params }: AnyCall) {
  if ((params['name'] ?? '') !== '') return undefined
  const keys: string[] = []
  for (let after: string | undefined; ; ) {
    const page = await store.list<unknown>(kind, `${mount.id}/`, {
      limit: LIST_PAGE,
      ...(after !== undefined && { after }),
    })
    keys.push(...page.map(({ key }) => key.slice(mount.id.length + 1)))
    if (page.length < LIST_PAGE) return { shape: 'listing', keys } as const
    after = page.at(-1)?.key
  }
}

async function deleted(store: Store, kind: Kind, call: AnyCall, what: string) {
  const key = await keyOf(store, call)
  const found = await store.read<{ owner?: string }>(kind, key)
  if (!found) return undefined
  requireWritable(found.value.owner, call.caller, what)
  const path = `${kind === groupKind ? 'groups' : 'users'}/${call.params['name']}`
  await store.commit([
    remove(kind, key, { expected: 'any' }),
    publish({ type: kind === groupKind ? 'group-delete' : 'user-delete', mount: call.mount.path, path }),
  ])
  return undefined
}

/** The owner of the object after this write; refuses a write into somebody else's, and a resource that would take over unasked. */
function takeOver(
  owner: string | undefined,
  exists: boolean,
  call: Call<{ adopt: boolean }>,
  what: string,
): string | undefined {
  if (call.fields.adopt && !call.caller.isController) throw invalid('adopt: only the controller may set it')
  requireWritable(owner, call.caller, what)
  if (exists && owner === undefined && call.caller.owner !== undefined && call.fields.adopt !== true)
    throw invalid(`${what} was made through the API; it is taken over only when asked to`, { reason: 'owned-by-api' })
  return call.caller.owner ?? owner
}
