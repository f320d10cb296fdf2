import * as z from 'zod'
import { AppError, denied, invalid } from '../../../lib/errors.ts'
import { Secret } from '../../../lib/secret.ts'
import { secretText } from '../../../schema/fields.ts'
import { wire } from '../../../schema/wire.ts'
import { GuardClosed } from '../../account/guard.ts'
import type { Call, Login, Mount, Route } from '../../backend.ts'
import { route } from '../../backend.ts'
import { isDirectoryError } from '../../directory/errors.ts'
import { cidrAllows } from '../../token/cidr.ts'
import type { LdapAuthDeps } from './deps.ts'
import { isDisabled } from './disabled.ts'
import { type Effective, effective } from './effective.ts'
import { policiesOf } from './grants.ts'
import type { Lockout } from './lockout.ts'
import type { LoginTurns } from './login-turns.ts'
import { nameKey } from './names.ts'
import { configKind } from './records.ts'
import { describeUser, type Found, findUser, type LookUp, type User } from './user.ts'

/**
 * `login/:username`: find the user, prove the password by one bind, look up her groups, grant what they bring. A wrong
 * password and an unknown user get the same answer.
 */

const body = wire(z.object({ password: secretText(1024) }))
/** Should somebody make an entry of this name, it logs nobody in. */
const NOBODY = 'cn=keyturn-no-such-user'
const USERNAME_LIMIT = 512
const REFUSED = 'ldap operation failed: failed to bind as user'
const AWAY = 'the directory cannot serve logins now'
const UNWILLING = 'ldap operation failed: the directory did not let this user be looked up'

type LoginDeps = LdapAuthDeps & { readonly lockout: Lockout; readonly turns: LoginTurns }
/** Counts the attempt into an entry that was found. */
type Attempt = <T>(entry: string, work: () => Promise<T | undefined>) => Promise<T | undefined>

export function loginRoutes(deps: LoginDeps): Route[] {
  return [
    route({
      pattern: 'login/:username+',
      unauthenticated: true,
      body,
      write: (call) =>
        deps.turns.admit(call.mount.id, async () => ({ login: await untold(deps, call, () => login(deps, call)) })),
    }),
  ]
}

/** Anybody may ask: what is wrong with the directory, and where it is, stands in the log alone. */
async function untold<T>({ log }: LoginDeps, { mount }: Call<unknown>, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    if (!isDirectoryError(cause) && !(cause instanceof GuardClosed)) throw cause
    if (cause.kind === 'unavailable') throw new AppError('unavailable', AWAY, { cause })
    log.warn({ mount: mount.path, reason: cause.message }, 'a login failed for what the directory refused')
    throw new AppError(cause.kind, UNWILLING, { cause })
  }
}

async function login(deps: LoginDeps, call: Call<{ password: Secret }>): Promise<Login> {
  const { mount } = call
  const now = await requireConfig(deps, mount)
  if (now.token.boundCidrs.length > 0 && !cidrAllows(now.token.boundCidrs, call.remote.address)) throw denied()
  const username = (call.params['username'] ?? '').trim()
  if (username === '') throw invalid('username must not be empty')
  // Anybody may ask, and what failed is remembered for a while.
  if (username.length > USERNAME_LIMIT) throw invalid(`username must be at most ${USERNAME_LIMIT} characters`)
  const password = call.fields.password ?? new Secret('')
  if (password.isEmpty && now.denyNullBind)
    throw invalid('password cannot be of zero length when passwordless binds are denied')

  // Who is gone before the directory was asked need not be served; afterwards the attempt counts.
  const signals = call.gone ? [call.signal, call.gone] : [call.signal]
  const attempt: Attempt = (entry, work) => deps.lockout.attempt(mount, { name: username, entry }, [call.signal], work)
  const proven = await deps.lockout.attempt(mount, { name: username }, signals, () =>
    deps.turns.inTurn(mount.id, signals, () =>
      deps.guard.run(mount.id, async (admission) => {
        // As it is configured by now: what was so when the wait began may be refused.
        const then = await requireConfig(deps, mount)
        const lookUp = { ...deps, admission, signal: call.signal, warn: call.warn }
        const user = await prove(lookUp, then, username, password, attempt)
        return user && { user, then }
      }),
    ),
  )
  if (!proven) throw invalid(REFUSED)
  const { user, then } = proven
  return grant(deps, mount, then, username, user, { ...(!then.service && { password: password.reveal() }) })
}

/** Finds the user and binds as her; `undefined` when there is no such user or the password is wrong. */
async function prove(
  lookUp: LookUp,
  now: Effective,
  username: string,
  password: Secret,
  attempt: Attempt,
): Promise<User | undefined> {
  const found = await findUser(lookUp, now, username)
  if (!found) {
    // One bind as nobody, whose answer says nothing, and one count: else a clock would tell which names there are.
    return attempt(`${NOBODY}, ${username}`, async () => {
      if (!password.isEmpty) await lookUp.door.verify(now.settings, { name: nobody(now), password }, lookUp.signal)
      return undefined
    })
  }
  const check = () => bindAs(lookUp, now, username, password, found)
  return found.entry ? attempt(found.entry.dn, check) : check()
}

async function bindAs(
  lookUp: LookUp,
  now: Effective,
  username: string,
  password: Secret,
  found: Found,
): Promise<User | undefined> {
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
  const granted = await policiesOf(deps.store, mount, now, [username, ...user.names], user.groups)
  if (granted.includes('root')) throw invalid('the policies of this user contain "root", which a login cannot grant')
  return {
    aliasName: nameKey(user.alias, now),
    groupAliases: user.groups,
    displayName: username,
    metadata: { username },
    policies: granted,
    token: now.token,
    renewal: { username, ...secrets },
  }
}

/**
 * Asks again for a token being renewed: a user who vanished or is disabled, or whose password no longer binds where the service has no identity
 * of its own, is refused. An unreachable directory is `unavailable` and ends nothing.
 */
export async function renewLdapLogin(
  deps: LdapAuthDeps,
  mount: Mount,
  renewal: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Login> {
  const { username = '', password } = renewal
  const configured = async () => {
    const now = await requireConfig(deps, mount)
    // The service's identity was taken away since: nobody could tell whether the user is still there.
    if (!now.service && password === undefined) throw invalid('the login method changed since this login: log in again')
    return now
  }
  await configured()
  const proven = await deps.guard.run(mount.id, async (admission) => {
    // As it is configured by now, as for a login.
    const then = await configured()
    const lookUp = { ...deps, admission, signal, warn: () => undefined }
    if (password !== undefined) {
      const user = await prove(lookUp, then, username, new Secret(password), (_, work) => work())
      return user && { user, then }
    }
    const found = await findUser(lookUp, then, username)
    if (!found || isDisabled(found.entry, deps.clock.now())) return undefined
    return { user: await describeUser(lookUp, then, username, found), then }
  })
  if (!proven) throw invalid(REFUSED)
  const { user, then } = proven
  return grant(deps, mount, then, username, user, { ...(password !== undefined && { password }) })
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
