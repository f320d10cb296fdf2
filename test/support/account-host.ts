import * as z from 'zod'
import { accountCodec, accountDue, NEW_ACCOUNT } from '../../src/engine/account/account.ts'
import type { AccountHost, LoadedAccount } from '../../src/engine/account/host.ts'
import type { DirectorySettings } from '../../src/engine/directory/directory.ts'
import { generatePassword } from '../../src/engine/password/generate.ts'
import { publish, put, recordKind, remove, type Store } from '../../src/engine/storage/store.ts'
import { invalid } from '../../src/lib/errors.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { Secret } from '../../src/lib/secret.ts'
import { SUFFIX } from './slapd.ts'

/** The smallest record that holds an account, for tests of the account state machine. Keys are `<mount>/<uid>`. */
export const testAccountKind = recordKind('test-account/', z.object({ account: accountCodec, creating: z.boolean() }))

export const MANAGER = { name: `cn=svc-manager,ou=services,${SUFFIX}`, password: new Secret('svc-manager-secret') }
export const MOUNT = 'm1'
export const dnOf = (uid: string) => `uid=${uid},ou=services,${SUFFIX}`

export function settingsFor(urls: readonly string[], overrides: Partial<DirectorySettings> = {}): DirectorySettings {
  return {
    urls,
    connectionTimeoutMs: 10_000,
    requestTimeoutMs: 10_000,
    startTls: false,
    insecureTls: false,
    tlsMinVersion: 'tls12',
    tlsMaxVersion: 'tls13',
    dereferenceAliases: 'never',
    maxPageSize: 0,
    ...overrides,
  }
}

export interface TestHostOptions {
  readonly store: Store
  readonly settings: DirectorySettings
  readonly mountId?: string
  /** Default: below ou=services, by uid. */
  readonly target?: LoadedAccount['target']
  readonly identity?: LoadedAccount['identity']
  readonly periodMs?: number
  readonly generate?: () => Secret
  readonly forbid?: (dn: string) => boolean
}

export function testHost(uid: string, options: TestHostOptions): AccountHost {
  const { store, settings, mountId = MOUNT, periodMs = 3_600_000 } = options
  const key = `${mountId}/${uid}`
  const loadedFrom = (value: z.output<typeof testAccountKind.codec>, version: number): LoadedAccount => ({
    account: value.account,
    version,
    creating: value.creating,
    settings,
    identity: options.identity ?? MANAGER,
    schema: 'openldap',
    credentialType: 'password',
    target: options.target ?? { userDn: `ou=services,${SUFFIX}`, userAttr: 'uid', username: uid },
    async permit(dn) {
      if (options.forbid?.(dn)) throw invalid(`${dn} may not be managed`, { reason: 'not-permitted' })
    },
    generate: options.generate ?? (() => generatePassword({}, systemRandom)),
    nextRotation: (from) => new Date(from.getTime() + periodMs),
    subject: { mount: 'ldap/', path: `static-role/${uid}` },
  })
  return {
    lockKey: key,
    mountId,
    async load() {
      const stored = await store.read(testAccountKind, key)
      return stored && loadedFrom(stored.value, stored.version)
    },
    async isUnchanged({ version }) {
      return (await store.readUnless(testAccountKind, key, version)) === 'unchanged'
    },
    async save(loaded, { account, dueAt, promoted, events }) {
      const value = { account, creating: loaded.creating && promoted === undefined }
      const due = accountDue(mountId, account, dueAt)
      const versions = await store.commit([
        put(testAccountKind, key, value, { expected: loaded.version, due }),
        ...events.map(publish),
      ])
      return loadedFrom(value, versions.get(key) ?? 0)
    },
    async discard(loaded) {
      await store.commit([remove(testAccountKind, key, { expected: loaded.version })])
    },
  }
}

/** Puts the record of an account; `confirmed` with a password makes an existing role, without one a creation that has just begun. */
export async function putAccount(
  store: Store,
  uid: string,
  {
    mountId = MOUNT,
    password,
    dueAt,
    since = dueAt,
  }: { mountId?: string; password?: string; dueAt: Date; since?: Date },
): Promise<void> {
  const account =
    password === undefined
      ? NEW_ACCOUNT
      : { credentialVersion: 1, confirmed: { password: new Secret(password), since } }
  const due = accountDue(mountId, account, dueAt)
  const value = { account, creating: password === undefined }
  await store.commit([put(testAccountKind, `${mountId}/${uid}`, value, { expected: 'any', due })])
}
