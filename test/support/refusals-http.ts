import type { ErrorKind } from '../../src/lib/errors.ts'
import { LDAP_REFUSALS } from './refusals-ldap.ts'

/** A request that is refused: what is sent, and what comes back. */
export interface HttpRefusal {
  readonly method: 'GET' | 'LIST' | 'POST' | 'DELETE'
  /** Without `/v1/`, not encoded. */
  readonly path: string
  readonly query?: string
  readonly body?: unknown
  /** Who asks: root, a person with the default policy, a person with some rights, nobody, the controller on its socket. Default root. */
  readonly as?: 'root' | 'default' | 'limited' | 'nobody' | 'controller'
  /** For which resource the controller writes. */
  readonly owner?: string
  readonly status: number
  /** Of the message. */
  readonly fragment: string
}

/** What the limited person may do. */
export const LIMITED_POLICY = `
path "auth/token/create" { capabilities = ["create", "update"] }
path "auth/token/revoke-orphan" { capabilities = ["create", "update"] }
path "auth/token/accessors" { capabilities = ["list"] }
path "sys/storage/snapshot" { capabilities = ["create", "update"] }
path "sys/auth/*" { capabilities = ["create", "read", "update", "delete"] }
path "sys/tenancy/*" { capabilities = ["create", "read", "update"] }
path "ldap/static-role/a/*" { capabilities = ["create"] }
`

const STATUS: Record<ErrorKind, number> = {
  invalid: 400,
  denied: 403,
  'not-found': 404,
  unsupported: 405,
  'too-large': 413,
  unavailable: 503,
}
const METHOD = { read: 'GET', list: 'LIST', write: 'POST', delete: 'DELETE' } as const

type Fields = Record<string, unknown>
type Pair = readonly [Fields, string]

const writes = (path: string, pairs: readonly Pair[], more: Partial<HttpRefusal> = {}): HttpRefusal[] =>
  pairs.map(([body, fragment]) => ({ method: 'POST', path, body, status: 400, fragment, ...more }))
const reads = (path: string, pairs: readonly (readonly [string, string])[]): HttpRefusal[] =>
  pairs.map(([query, fragment]) => ({ method: 'GET', path, query, status: 400, fragment }))

/** `ldap/`: the engine's own table, over HTTP. */
const secrets: readonly HttpRefusal[] = LDAP_REFUSALS.map(({ operation, path, fields, kind, fragment }) => ({
  method: METHOD[operation],
  path: `ldap/${path}`,
  ...(fields && { body: fields }),
  status: STATUS[kind],
  // Such a path does not come as far as the engine.
  fragment: path.split('/').includes('..') ? 'segment ".."' : path.endsWith('/ä') ? 'name' : fragment,
}))

const FLAGS = [
  'case_sensitive_names',
  'starttls',
  'insecure_tls',
  'discoverdn',
  'deny_null_bind',
  'anonymous_group_search',
  'username_as_alias',
  'use_token_groups',
  'enable_samaccountname_login',
  'use_pre111_group_cn_behavior',
  'disable_automated_rotation',
]
const flags = (path: string, names: readonly string[]) =>
  writes(
    path,
    names.map((name) => [{ [name]: 'perhaps' }, name]),
  )

const login = 'auth/ldap/config'
const auth: readonly HttpRefusal[] = [
  ...flags('ldap/config', [...FLAGS, 'skip_static_role_import_rotation']),
  ...writes('ldap/config', [
    [{ max_ttl: '-1h' }, 'max_ttl'],
    [{ tls_max_version: 'tls9' }, 'tls_max_version'],
    [{ tls_max_version: 'tls11' }, 'tls_max_version'],
    [{ rotation_period: 'abc' }, 'rotation_period'],
    [{ length: 4097 }, 'length'],
  ]),
  ...flags(login, [...FLAGS, 'token_no_default_policy']),
  ...writes(login, [
    [{ url: '' }, 'url'],
    [{ url: 'ldap://dc1,' }, 'url'],
    [{ url: 'https://dc1' }, 'url'],
    [{ url: 'ldap://dc1/dc=x' }, 'url'],
    [{ url: [['ldap://dc1']] }, 'url'],
    [{ url: 'ldaps://dc1', starttls: true }, 'starttls'],
    [{ connection_timeout: -1 }, 'connection_timeout'],
    [{ connection_timeout: 'abc' }, 'connection_timeout'],
    [{ request_timeout: '-5s' }, 'request_timeout'],
    [{ request_timeout: '9999999999h' }, 'request_timeout'],
    [{ tls_min_version: 'tls14' }, 'tls_min_version'],
    [{ tls_max_version: 'ssl3' }, 'tls_max_version'],
    [{ tls_min_version: 'tls13', tls_max_version: 'tls12' }, 'tls_max_version'],
    [{ certificate: 'none' }, 'certificate'],
    [{ client_tls_cert: 'x' }, 'client_tls_key'],
    [{ client_tls_key: 'x' }, 'client_tls_cert'],
    [{ userattr: 'c n' }, 'userattr'],
    [{ groupattr: '(cn)' }, 'groupattr'],
    [{ userfilter: '({{.UserAttr}={{.Username}})' }, 'userfilter'],
    [{ userfilter: '({{.Nobody}}=x)' }, 'userfilter'],
    [{ userfilter: '((uid={{.Username}})' }, 'userfilter'],
    [{ groupfilter: '(member={{.UserDN)' }, 'groupfilter'],
    [{ groupfilter: 'member={{.UserDN}' }, 'groupfilter'],
    [{ dereference_aliases: 'sometimes' }, 'dereference_aliases'],
    [{ max_page_size: -1 }, 'max_page_size'],
    [{ max_page_size: '1.5' }, 'max_page_size'],
    [{ enable_samaccountname_login: true }, 'upndomain'],
    [{ rotation_period: 4 }, 'rotation_period'],
    [{ rotation_period: 60, rotation_schedule: '0 3 * * 6' }, 'rotation_period and rotation_schedule'],
    [{ rotation_window: 3600 }, 'rotation_window'],
    [{ rotation_window: 'wide' }, 'rotation_window'],
    [{ rotation_schedule: '0 3 * * 6', rotation_window: 60 }, 'rotation_window'],
    [{ rotation_schedule: '@daily' }, 'rotation_schedule'],
    [{ rotation_schema: 'novell' }, 'rotation_schema'],
    [{ token_ttl: '2h', token_max_ttl: '1h' }, 'token_ttl'],
    [{ token_ttl: -1 }, 'token_ttl'],
    [{ token_max_ttl: 'abc' }, 'token_max_ttl'],
    [{ token_explicit_max_ttl: -1 }, 'token_explicit_max_ttl'],
    [{ token_period: '1w' }, 'token_period'],
    [{ token_policies: 'a,Root' }, 'root'],
    [{ token_policies: [['a']] }, 'token_policies'],
    [{ policies: 'root' }, 'root'],
    [{ policies: { a: 1 } }, 'policies'],
    [{ token_num_uses: -1 }, 'token_num_uses'],
    [{ token_num_uses: 'x' }, 'token_num_uses'],
    [{ token_bound_cidrs: '10.0.0.0/33' }, 'token_bound_cidrs'],
    [{ token_bound_cidrs: 'here' }, 'token_bound_cidrs'],
    [{ token_type: 'batch' }, 'token_type'],
    [{ token_type: 'batch', token_period: 60 }, 'token_type'],
    [{ token_type: 'default-batch' }, 'token_type'],
    [{ token_type: 'eternal' }, 'token_type'],
  ]),
  { method: 'DELETE', path: login, status: 405, fragment: 'unsupported' },
  ...writes(login, [
    [{ disown: true }, 'disown'],
    [{ disown: 'maybe' }, 'disown'],
    [{ prove: true }, 'prove'],
    [{ prove: 'maybe' }, 'prove'],
  ]),
  ...writes('ldap/static-role/team/app', [
    [{ disown: true }, 'disown'],
    [{ adopt: 'maybe' }, 'adopt'],
  ]),
  ...writes('auth/ldap/groups/engineers', [
    [{ policies: {} }, 'policies'],
    [{ policies: [['a']] }, 'policies'],
    [{ adopt: 'maybe' }, 'adopt'],
    [{ adopt: true }, 'adopt'],
  ]),
  ...writes('auth/ldap/users/alice', [
    [{ policies: 'x'.repeat(600) }, 'policies'],
    [{ groups: {} }, 'groups'],
    [{ groups: [['a']] }, 'groups'],
    [{ adopt: 'maybe' }, 'adopt'],
    [{ adopt: true }, 'adopt'],
  ]),
  ...['groups', 'users'].flatMap((kind): HttpRefusal[] => [
    { method: 'POST', path: `auth/ldap/${kind}`, body: { policies: 'a' }, status: 405, fragment: 'unsupported' },
    { method: 'GET', path: `auth/ldap/${kind}`, status: 405, fragment: 'unsupported' },
    { method: 'DELETE', path: `auth/ldap/${kind}`, status: 405, fragment: 'unsupported' },
    { method: 'POST', path: `auth/ldap/${kind}/ `, body: { policies: 'a' }, status: 400, fragment: 'name' },
    { method: 'POST', path: `auth/ldap/${kind}/${'n'.repeat(2000)}`, body: {}, status: 400, fragment: 'name' },
  ]),
  ...writes(
    'auth/ldap/login/alice',
    [
      [{}, 'password'],
      [{ password: '' }, 'password'],
      [{ password: {} }, 'password'],
      [{ password: ['alice-secret'] }, 'password'],
      [{ password: 'x'.repeat(2000) }, 'password'],
      [{ password: 'wrong' }, 'failed to bind as user'],
    ],
    { as: 'nobody' },
  ),
  ...writes('auth/ldap/login/nobody-here', [[{ password: 'wrong' }, 'failed to bind as user']], { as: 'nobody' }),
  ...writes('auth/ldap/login/ ', [[{ password: 'wrong' }, 'username']], { as: 'nobody' }),
  { method: 'GET', path: 'auth/ldap/login/alice', as: 'nobody', status: 405, fragment: 'unsupported' },
  { method: 'POST', path: 'auth/ldap/login', body: { password: 'x' }, status: 404, fragment: 'no handler' },
  { method: 'POST', path: 'auth/ldap/login/', body: { password: 'x' }, status: 400, fragment: 'ending in "/"' },
  ...writes('auth/bare/login/alice', [[{ password: 'x' }, 'not configured']], { as: 'nobody' }),
  ...writes('auth/lost/login/alice', [[{ password: 'x' }, 'cannot serve logins now']], { as: 'nobody', status: 503 }),
  ...writes('auth/refused/login/alice', [[{ password: 'x' }, 'cannot serve logins now']], {
    as: 'nobody',
    status: 503,
  }),
  ...writes('auth/bound/login/alice', [[{ password: 'alice-secret' }, 'permission denied']], {
    as: 'nobody',
    status: 403,
  }),
  ...writes('auth/aliasless/login/alice', [[{ password: 'alice-secret' }, 'employeetype']], { as: 'nobody' }),
  ...writes('auth/rootly/login/alice', [[{ password: 'alice-secret' }, '"root"']], { as: 'nobody' }),
  ...writes('auth/locked/login/bob', [[{ password: 'bob-secret' }, 'permission denied']], {
    as: 'nobody',
    status: 403,
  }),
]

const create = 'auth/token/create'
const token: readonly HttpRefusal[] = [
  ...[create, 'auth/token/create-orphan'].flatMap((path) => [
    ...writes(path, [
      [{ id: 'with space' }, 'id'],
      [{ id: {} }, 'id'],
      [{ policies: {} }, 'policies'],
      [{ policies: [['a']] }, 'policies'],
      [{ policies: 'keyturn-controller' }, 'policies'],
      [{ policies: 'response-wrapping' }, 'policies'],
      [{ meta: 'no pair' }, 'meta'],
      [{ meta: ['a=1', 'no pair'] }, 'meta'],
      [{ meta: '{"a":' }, 'meta'],
      [{ meta: '{"a":{}}' }, 'meta'],
      [{ meta: { a: {} } }, 'meta'],
      [{ no_parent: 'perhaps' }, 'no_parent'],
      [{ no_default_policy: 2 }, 'no_default_policy'],
      [{ ttl: -1 }, 'ttl'],
      [{ ttl: 'abc' }, 'ttl'],
      [{ explicit_max_ttl: '1 year' }, 'explicit_max_ttl'],
      [{ period: '-1h' }, 'period'],
      [{ display_name: {} }, 'display_name'],
      [{ num_uses: -1 }, 'num_uses'],
      [{ num_uses: 1.5 }, 'num_uses'],
      [{ renewable: 'sometimes' }, 'renewable'],
      [{ type: 'batch' }, 'type'],
      [{ type: 'eternal' }, 'type'],
      [{ entity_alias: 'bob' }, 'entity_alias'],
    ]),
  ]),
  ...writes(
    create,
    [
      [{ id: 'mine-own-id' }, 'id needs the sudo'],
      [{ no_parent: true }, 'no_parent needs the sudo'],
      [{ period: '1h' }, 'period needs the sudo'],
      [{ policies: 'somebody-elses' }, 'subset'],
      [{ policies: 'root' }, 'root'],
    ],
    { as: 'limited' },
  ),
  ...writes('auth/token/lookup', [[{ token: 'unknown' }, 'bad token']], { status: 403 }),
  ...writes('auth/token/lookup', [[{ token: {} }, 'token']]),
  ...writes('auth/token/lookup-accessor', [
    [{}, 'accessor'],
    [{ accessor: {} }, 'accessor'],
    [{ accessor: 'x'.repeat(100) }, 'accessor'],
  ]),
  ...writes('auth/token/lookup-accessor', [[{ accessor: 'unknown' }, 'invalid accessor']], { status: 403 }),
  ...writes('auth/token/renew', [
    [{}, 'token'],
    [{ increment: -1 }, 'increment'],
    [{ token: [] }, 'token'],
  ]),
  ...writes('auth/token/renew', [[{ token: 'unknown' }, 'bad token']], { status: 403 }),
  ...writes('auth/token/renew-self', [
    [{ increment: 'abc' }, 'increment'],
    [{}, 'lease is not renewable'],
  ]),
  ...writes('auth/token/renew-accessor', [
    [{}, 'accessor'],
    [{ accessor: {} }, 'accessor'],
    [{ accessor: 'unknown', increment: '-1s' }, 'increment'],
  ]),
  ...writes('auth/token/renew-accessor', [[{ accessor: 'unknown' }, 'invalid accessor']], { status: 403 }),
  ...['revoke', 'revoke-orphan'].flatMap((verb) =>
    writes(`auth/token/${verb}`, [
      [{}, 'token'],
      [{ token: '' }, 'token'],
      [{ token: {} }, 'token'],
    ]),
  ),
  ...writes('auth/token/revoke-orphan', [[{ token: 'x' }, 'permission denied']], { as: 'limited', status: 403 }),
  ...writes('auth/token/revoke-accessor', [
    [{}, 'accessor'],
    [{ accessor: {} }, 'accessor'],
  ]),
  { method: 'LIST', path: 'auth/token/accessors', as: 'limited', status: 403, fragment: 'permission denied' },
  { method: 'LIST', path: 'auth/token/accessors', query: 'limit=0', status: 400, fragment: 'limit' },
  { method: 'LIST', path: 'auth/token/accessors', query: 'limit=all', status: 400, fragment: 'limit' },
  { method: 'LIST', path: 'auth/token/accessors', query: 'limit=1&after=a&after=b', status: 400, fragment: 'after' },
]

const mount = (path: string): HttpRefusal[] => [
  ...writes(`${path}/new`, [
    [{}, 'type'],
    [{ type: {} }, 'type'],
    [{ type: 'kv' }, 'type'],
    [{ type: 'ldap', disown: true }, 'disown'],
    [{ type: 'ldap', disown: 'maybe' }, 'disown'],
    [{ type: 'system' }, 'type'],
    [{ type: 'ldap', description: {} }, 'description'],
    [{ type: 'ldap', description: 'd'.repeat(2000) }, 'description'],
    [{ type: 'ldap', config: [] }, 'config'],
    [{ type: 'ldap', config: 'x' }, 'config'],
    [{ type: 'ldap', config: { default_lease_ttl: 'abc' } }, 'default_lease_ttl'],
    [{ type: 'ldap', config: { default_lease_ttl: '-1h' } }, 'default_lease_ttl'],
    [{ type: 'ldap', config: { max_lease_ttl: '9000h' } }, 'max_lease_ttl'],
    [{ type: 'ldap', config: { default_lease_ttl: '2h', max_lease_ttl: '1h' } }, 'default_lease_ttl'],
    [{ type: 'ldap', config: { token_type: 'batch' } }, 'token_type'],
    [{ type: 'ldap', config: { listing_visibility: 'all' } }, 'listing_visibility'],
    [{ type: 'ldap', config: { user_lockout_config: 5 } }, 'user_lockout_config'],
    [{ type: 'ldap', config: { user_lockout_config: { lockout_threshold: 0 } } }, 'lockout_threshold'],
  ]),
  ...writes(`${path}/in use/../x`, [[{ type: 'ldap' }, 'segment ".."']]),
  ...['a//b', './a', 'a*', '+/a', ' a', 'x'.repeat(300)].flatMap((name) =>
    writes(`${path}/${name}`, [[{ type: 'ldap' }, 'path']]),
  ),
  { method: 'GET', path: `${path}/absent`, status: 400, fragment: 'no mount' },
  { method: 'GET', path: `${path}/absent/tune`, status: 400, fragment: 'no mount' },
  ...writes(`${path}/absent/tune`, [[{ description: 'x' }, 'no mount']]),
  ...writes(`${path}/ldap/tune`, [
    [{ default_lease_ttl: 'abc' }, 'default_lease_ttl'],
    [{ default_lease_ttl: -1 }, 'default_lease_ttl'],
    [{ default_lease_ttl: '769h' }, 'default_lease_ttl'],
    [{ default_lease_ttl: '2h', max_lease_ttl: '1h' }, 'default_lease_ttl'],
    [{ max_lease_ttl: 'forever' }, 'max_lease_ttl'],
    [{ description: {} }, 'description'],
    [{ token_type: 'batch' }, 'token_type'],
    [{ token_type: 'default-batch' }, 'token_type'],
    [{ token_type: 'eternal' }, 'token_type'],
    [{ listing_visibility: 'all' }, 'listing_visibility'],
    [{ lockout_threshold: 0 }, 'lockout_threshold'],
    [{ lockout_threshold: 'many' }, 'lockout_threshold'],
    [{ lockout_duration: -1 }, 'lockout_duration'],
    [{ lockout_counter_reset: 'abc' }, 'lockout_counter_reset'],
    [{ lockout_disable: 'perhaps' }, 'lockout_disable'],
    [{ user_lockout_config: [] }, 'user_lockout_config'],
    [{ user_lockout_config: { lockout_disable: 'perhaps' } }, 'lockout_disable'],
  ]),
]

const POLICY = 'path "a" { capabilities = ["read"] }'
const entry = { principals: ['kubernetes:team'], kinds: ['StaticRole'], allowed_dns: ['ou=x,dc=test'] }
const entryFields: readonly Pair[] = [
  [{ principals: [] }, 'principals'],
  [{ principals: ['team'] }, 'principals'],
  [{ principals: {} }, 'principals'],
  [{ kinds: ['Secret'] }, 'kinds'],
  [{ allowed_dns: 'ou=x,dc=test' }, 'allowed_dns'],
  [{ allowed_dns: [''] }, 'allowed_dns'],
  [{ allowed_dns: ['nonsense'] }, 'allowed_dns'],
  [{ allowed_group_dns: ['x'] }, 'allowed_group_dns'],
  [{ denied_dns: ['x'] }, 'denied_dns'],
  [{ min_rotation_period: -1 }, 'min_rotation_period'],
  [{ max_ttl: 'abc' }, 'max_ttl'],
  [{ max_roles: -1 }, 'max_roles'],
  [{ free_role_names: 'perhaps' }, 'free_role_names'],
  [{ alowed_dns: [] }, 'alowed_dns'],
]

const system: readonly HttpRefusal[] = [
  ...mount('sys/mounts'),
  ...writes('sys/mounts/ldap', [[{ type: 'ldap', config: { max_lease_ttl: 'x' } }, 'max_lease_ttl']]),
  ...writes('sys/mounts/ldap/below', [[{ type: 'ldap' }, 'path is already in use']]),
  ...writes('sys/mounts/taken', [[{ type: 'ldap' }, 'path is already in use']]),
  ...['sys', 'sys/x', 'identity', 'cubbyhole', 'auth', 'auth/x', 'token'].flatMap((path) =>
    writes(`sys/mounts/${path}`, [[{ type: 'ldap' }, 'path']]),
  ),
  { method: 'DELETE', path: 'sys/mounts/sys', status: 400, fragment: 'cannot be removed' },
  ...writes('sys/mounts/new', [[{ type: 'ldap', config: { token_type: 'service' } }, 'auth mounts only']]),
  ...writes('sys/mounts/ldap/tune', [[{ token_type: 'service' }, 'auth mounts only']]),
  ...['', '/tune'].flatMap((path): HttpRefusal[] => [
    { method: 'GET', path: `sys/mounts/auth/ldap${path}`, status: 400, fragment: 'no mount' },
  ]),
  ...writes('sys/mounts/auth/ldap/tune', [[{ description: 'x' }, 'no mount']]),
  ...mount('sys/auth'),
  ...writes('sys/auth/taken', [[{ type: 'ldap' }, 'path is already in use']]),
  ...writes('sys/auth/new', [[{ type: 'token' }, 'type']]),
  ...writes('sys/auth/new', [[{ type: 'cloud' }, 'type']]),
  ...writes('sys/auth/token/x', [[{ type: 'ldap' }, 'path is already in use']]),
  { method: 'DELETE', path: 'sys/auth/token', status: 400, fragment: 'cannot be removed' },
  ...writes('sys/auth/new', [[{ type: 'ldap' }, 'permission denied']], { as: 'limited', status: 403 }),
  ...['policies/acl', 'policy'].flatMap((path) => [
    ...writes(`sys/${path}/new`, [
      [{}, 'policy must not be empty'],
      [{ policy: '' }, 'policy must not be empty'],
      [{ policy: ' \n' }, 'policy must not be empty'],
      [{ rules: '' }, 'policy must not be empty'],
      [{ policy: {} }, 'policy'],
      [{ rules: [] }, 'rules'],
      [{ policy: 'path "x"' }, 'line 1'],
      [{ policy: '\n\npath "x" { capabilities = ["fly"] }' }, 'line 3'],
      [{ rules: 'path "x" { policy = "fly" }' }, 'line 1'],
      [{ policy: 'path "x" {}' }, 'no capabilities'],
      [{ policy: 'path "a*b" { capabilities = ["read"] }' }, '"*"'],
      [{ policy: 'path "{{identity.entity.id}}" { capabilities = ["read"] }' }, 'templates'],
      [{ policy: 'path "x" { capabilities = ["read"] min_wrapping_ttl = "1m" }' }, 'min_wrapping_ttl'],
      [{ policy: 'path "x" { capabilities = ["read"] max_wrapping_ttl = "1m" }' }, 'max_wrapping_ttl'],
      [{ policy: '{"path": 1}' }, 'path'],
      [{ policy: Buffer.from('path "x"').toString('base64') }, 'line 1'],
      [{ policy: `# ${'x'.repeat(1_000_001)}` }, 'policy'],
    ]),
    ...['root', 'ROOT', 'response-wrapping', 'keyturn-controller'].flatMap((name) =>
      writes(`sys/${path}/${name}`, [[{ policy: POLICY }, name.toLowerCase()]]),
    ),
    ...['a b', 'a,b', 'x'.repeat(300)].flatMap((name) => writes(`sys/${path}/${name}`, [[{ policy: POLICY }, 'name']])),
    ...['root', 'default'].map(
      (name): HttpRefusal => ({ method: 'DELETE', path: `sys/${path}/${name}`, status: 400, fragment: name }),
    ),
  ]),
  ...['capabilities-self', 'capabilities', 'capabilities-accessor'].flatMap((name) =>
    writes(`sys/${name}`, [
      [{ token: {} }, 'token'],
      [{ accessor: {} }, 'accessor'],
      [{ paths: {} }, 'paths'],
      [{ paths: [['a']] }, 'paths'],
      [{ path: {} }, 'path'],
    ]),
  ),
  ...writes('sys/capabilities-self', [
    [{}, 'paths'],
    [{ paths: [] }, 'paths'],
    [{ path: '' }, 'paths'],
  ]),
  ...writes('sys/capabilities', [[{ paths: 'a' }, 'token']]),
  ...writes('sys/capabilities', [[{ paths: 'a', token: 'unknown' }, 'bad token']], { status: 403 }),
  ...writes('sys/capabilities-accessor', [[{ paths: 'a' }, 'accessor']]),
  ...writes('sys/capabilities-accessor', [[{ paths: 'a', accessor: 'unknown' }, 'invalid accessor']], { status: 403 }),
  ...reads('sys/events', [
    ['after=-1', 'after'],
    ['after=x', 'after'],
    ['after=1.5', 'after'],
    ['after=0&wait=soon', 'wait'],
    ['after=0&wait=-1s', 'wait'],
    ['after=0&limit=0', 'limit'],
    ['after=0&limit=1001', 'limit'],
    ['after=0&limit=x', 'limit'],
    ['after=0&after=1', 'after'],
  ]),
  ...writes('sys/storage/snapshot', [
    [{ file: {} }, 'file'],
    [{ file: '' }, 'file'],
    [{ file: '.' }, 'file'],
    [{ file: '../out.db' }, 'file'],
    [{ file: 'a/b.db' }, 'file'],
    [{ file: '.hidden' }, 'file'],
    [{ file: 'nul\u0000.db' }, 'file'],
    [{ file: 'there.db' }, 'exists already'],
    [{ file: '/nowhere/at/all.db' }, 'no such file or directory'],
  ]),
  ...writes('sys/storage/snapshot', [[{ file: 'x.db' }, 'permission denied']], { as: 'limited', status: 403 }),
  ...(['root', 'limited'] as const).flatMap((as) => [
    ...writes('sys/tenancy/ldap', [[{ entries: [] }, 'permission denied']], { as, status: 403 }),
    { method: 'GET', path: 'sys/tenancy/ldap', as, status: 403, fragment: 'permission denied' } as const,
  ]),
  ...writes(
    'sys/tenancy/ldap',
    [
      [{}, 'entries'],
      [{ entries: {} }, 'entries'],
      [{ entries: 'x' }, 'entries'],
      [{ entries: ['x'] }, 'entries[0]'],
      [{ entries: Array.from({ length: 1001 }, () => entry) }, 'entries'],
      ...entryFields.map(([fields, fragment]): Pair => [{ entries: [{ ...entry, ...fields }] }, fragment]),
    ],
    { as: 'controller' },
  ),
  ...writes('sys/tenancy/absent', [[{ entries: [] }, 'mount']], { as: 'controller' }),
  ...writes('sys/tenancy/auth/ldap', [[{ entries: [] }, 'mount']], { as: 'controller' }),
  { method: 'GET', path: 'sys/tenancy/absent', as: 'controller', status: 400, fragment: 'mount' },
  ...writes('sys/remount', [
    [{}, 'from'],
    [{ from: 'ldap' }, 'to'],
    [{ from: 'absent', to: 'new' }, 'from: no mount'],
    [{ from: 'sys', to: 'new' }, 'cannot be moved'],
    [{ from: 'auth/token', to: 'auth/new' }, 'cannot be moved'],
    [{ from: 'auth/ldap', to: 'new' }, 'to: an auth mount'],
    [{ from: 'ldap', to: 'auth/new' }, 'to: an auth mount'],
    [{ from: 'ldap', to: 'taken' }, 'path is already in use'],
    [{ from: 'ldap', to: 'taken/below' }, 'path is already in use'],
    [{ from: 'ldap', to: 'sys/x' }, 'path'],
    [{ from: 'ldap', to: 'a//b' }, 'path'],
  ]),
  ...writes('sys/remount', [[{ from: 'ldap', to: 'new' }, 'permission denied']], { as: 'limited', status: 403 }),
  { method: 'POST', path: 'sys/init', as: 'nobody', body: {}, status: 400, fragment: 'already initialized' },
  { method: 'GET', path: 'sys/internal/ui/mounts/absent', status: 404, fragment: 'no mount' },
  { method: 'GET', path: 'sys/health', query: 'activecode=99', as: 'nobody', status: 400, fragment: 'activecode' },
  { method: 'GET', path: 'sys/health', query: 'activecode=x', as: 'nobody', status: 400, fragment: 'activecode' },
]

/** What the resource `OWNER` has made before: everybody else who would change it is told whose it is. */
export const OWNER = 'cr:uid-1'
export const OWNED: readonly (readonly [path: string, body: object])[] = [
  ['sys/mounts/owned', { type: 'ldap' }],
  ['sys/auth/owned', { type: 'ldap' }],
  ['auth/owned/config', { url: 'ldap://127.0.0.1:1' }],
  ['auth/ldap/groups/owned', { policies: 'a' }],
  ['auth/ldap/users/owned', { policies: 'a' }],
  ['sys/policies/acl/owned', { policy: POLICY }],
]
const owned: readonly HttpRefusal[] = [
  ...OWNED.flatMap(([path, body]) => [
    ...writes(path, [[{ ...body }, /^sys\/(mounts|auth)\//.test(path) ? 'path is already in use' : OWNER]]),
    ...writes(path, [[{ ...body }, OWNER]], { as: 'controller', owner: 'cr:uid-2' }),
  ]),
  ...OWNED.filter(([path]) => !path.endsWith('/config')).map(
    ([path]): HttpRefusal => ({ method: 'DELETE', path, status: 400, fragment: OWNER }),
  ),
  ...writes('sys/remount', [[{ from: 'owned', to: 'mine' }, OWNER]]),
  ...writes('sys/mounts/owned/tune', [[{ description: 'mine' }, OWNER]]),
  ...writes('sys/auth/owned/tune', [[{ description: 'mine' }, OWNER]]),
  ...writes('owned/config', [[{ binddn: 'cn=x', bindpass: 'y' }, OWNER]]),
  // What was made through the API is taken over only by who says so.
  ...[
    ['auth/ldap/groups/engineers', { policies: 'x' }] as const,
    ['auth/ldap/users/alice', { policies: 'x' }] as const,
    ['ldap/config', { request_timeout: 5 }] as const,
  ].flatMap(([path, body]) => writes(path, [[{ ...body }, 'through the API']], { as: 'controller', owner: OWNER })),
]

export const HTTP_REFUSALS: readonly HttpRefusal[] = [...secrets, ...auth, ...token, ...system, ...owned]

/** Text fields of write routes that take any text; objects and what is too long are refused like everywhere. */
export const ANY_TEXT: Readonly<Record<string, readonly string[]>> = {
  'ldap/config': ['userdn', 'upndomain', 'groupdn', 'groupattr', 'password_policy'],
  'auth/ldap/config': ['binddn', 'bindpass', 'userdn', 'upndomain', 'groupdn', 'password_policy'],
}
