import * as z from 'zod'
import { denied, invalid } from '../../../lib/errors.ts'
import { Secret } from '../../../lib/secret.ts'
import { secretText } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import type { Call, Login, Mount, Route } from '../../backend.ts'
import { route } from '../../backend.ts'
import { isDirectoryError } from '../../directory/errors.ts'
import { cidrAllows } from '../../token/cidr.ts'
import type { LdapAuthDeps } from './deps.ts'
import { type Effective, effective, nameKey } from './effective.ts'
import { policiesOf } from './grants.ts'
import type { Lockout } from './lockout.ts'
import { configKind } from './records.ts'
import { describeUser, findUser, type LookUp, type User } from './user.ts'

/**
 * `login/:username` (CONTRACT 7.4 to 7.6): find the user, prove the password by one bind, look up her groups, grant what they bring. A wrong
 * password and an unknown user get the same answer.
 */

const body = wire(z.object({ password: secretText(1024) }))
/** Should somebody make an entry of this name, it logs nobody in. */
const NOBODY = 'cn=keyturn-no-such-user'
const USERNAME_LIMIT = 512
const REFUSED = 'ldap operation failed: failed to bind as user'

export function loginRoutes(deps: LdapAuthDeps & { readonly lockout: Lockout }): Route[] {
  return [
    route({
      pattern: 'login/:username+',
      unauthenticated: true,
      body,
      write: async (call) => ({ login: await login(deps, call) }),
    }),
  ]
}

async function login(
  deps: LdapAuthDeps & { readonly lockout: Lockout },
  call: Call<{ password: Secret }>,
): Promise<Login> {
  const { mount } = call
  const now = await requireConfig(deps, mount)
  if (now.token.boundCidrs.length > 0 && !cidrAllows(now.token.boundCidrs, call.remote.address)) throw denied()
  // Names that differ by case or surrounding spaces are one name to most directories, so they share a counter.
  const username = (call.params['username'] ?? '').trim()
  if (username === '') throw invalid('username must not be empty')
  // Anybody may ask, and what failed is remembered for a while.
  if (username.length > USERNAME_LIMIT) throw invalid(`username must be at most ${USERNAME_LIMIT} characters`)
  const counter = nameKey(username, now)
  const password = call.fields.password ?? new Secret('')
  if (password.isEmpty && now.denyNullBind)
    throw invalid('password cannot be of zero length when passwordless binds are denied')

  const user = await deps.lockout.attempt(mount, counter, call.signal, () =>
    deps.guard.run(mount.id, (admission) =>
      prove({ ...deps, admission, signal: call.signal, warn: call.warn }, now, username, password),
    ),
  )
  if (user === 'locked') throw denied()
  if (!user) throw invalid(REFUSED)
  return grant(deps, mount, now, username, user, { ...(!now.service && { password: password.reveal() }) })
}

/** Finds the user and binds as her; `undefined` when there is no such user or the password is wrong. */
async function prove(lookUp: LookUp, now: Effective, username: string, password: Secret): Promise<User | undefined> {
  const found = await findUser(lookUp, now, username)
  if (!found) {
    // One bind as nobody, whose answer says nothing: else a clock would tell which names there are.
    if (!password.isEmpty) await lookUp.door.verify(now.settings, { name: nobody(now), password }, lookUp.signal)
    return undefined
  }
  const identity = { name: found.bindName, password }
  if (now.service || password.isEmpty) {
    const options = { allowUnauthenticated: !now.denyNullBind }
    const accepted = await lookUp.door.verify(now.settings, identity, lookUp.signal, options)
    return accepted ? describeUser(lookUp, now, username, found) : undefined
  }
  try {
    return await describeUser(lookUp, now, username, found, identity)
  } catch (error) {
    if (isDirectoryError(error) && error.class === 'bind-refused') return undefined
    throw error
  }
}

function nobody({ userDN }: Effective): string {
  return userDN === '' ? NOBODY : `${NOBODY},${userDN}`
}

/** What a user's name and groups bring. */
async function grant(
  deps: LdapAuthDeps,
  mount: Mount,
  now: Effective,
  username: string,
  user: User,
  secrets: Readonly<Record<string, string>>,
): Promise<Login> {
  const granted = await policiesOf(deps.store, mount, now, username, user.groups)
  if (granted.includes('root')) throw invalid('the policies of this user contain "root", which a login cannot grant')
  return {
    aliasName: now.caseSensitiveNames ? user.alias : user.alias.toLowerCase(),
    groupAliases: user.groups,
    displayName: username,
    metadata: { username },
    policies: granted,
    token: now.token,
    renewal: { username, ...secrets },
  }
}

/**
 * Asks again for a token being renewed: a user who vanished, or whose password no longer binds where the service has no identity of its own,
 * is refused. An unreachable directory is `unavailable` and ends nothing.
 */
export async function renewLdapLogin(
  deps: LdapAuthDeps,
  mount: Mount,
  renewal: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Login> {
  const now = await requireConfig(deps, mount)
  const { username = '', password } = renewal
  const user = await deps.guard.run(mount.id, async (admission) => {
    const lookUp = { ...deps, admission, signal, warn: () => undefined }
    if (password !== undefined) return prove(lookUp, now, username, new Secret(password))
    const found = await findUser(lookUp, now, username)
    return found && describeUser(lookUp, now, username, found)
  })
  if (!user) throw invalid(REFUSED)
  return grant(deps, mount, now, username, user, { ...(password !== undefined && { password }) })
}

async function requireConfig({ store }: LdapAuthDeps, mount: Mount): Promise<Effective> {
  const config = (await store.readRemembered(configKind, mount.id))?.value
  if (!config) throw invalid('the LDAP login method is not configured: write config first')
  const now = effective(config)
  if (!now.service && !now.discoverDN && now.upnDomain === '' && now.userDN === '')
    throw invalid(
      'config: none of binddn with bindpass, discoverdn, upndomain and userdn is set, so no user can be found',
    )
  return now
}
