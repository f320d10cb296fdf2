import type { ErrorKind } from '../../src/lib/errors.ts'

/** Refused inputs of the LDAP secrets engine: what is sent to a configured mount with one role (`team/app`), and what comes back. */
export interface Refusal {
  readonly operation: 'read' | 'list' | 'write' | 'delete'
  /** Inside the mount. */
  readonly path: string
  readonly fields?: Readonly<Record<string, unknown>>
  readonly kind: ErrorKind
  /** Of the message. */
  readonly fragment: string
}

const write = (path: string, fields: Refusal['fields'], fragment: string): Refusal => ({
  operation: 'write',
  path,
  fields: fields ?? {},
  kind: 'invalid',
  fragment,
})

const config: readonly (readonly [Record<string, unknown>, string])[] = [
  [{ binddn: '' }, 'binddn'],
  [{ bindpass: '' }, 'bindpass'],
  [{ binddn: {} }, 'binddn'],
  [{ url: '' }, 'url'],
  [{ url: 'http://dc1' }, 'url'],
  [{ url: 'ldap://' }, 'url'],
  [{ url: 'ldap://dc1,ldapi://x' }, 'url'],
  [{ url: 'ldap://dc1/dc=x' }, 'url'],
  [{ schema: 'novell' }, 'schema'],
  [{ userattr: 'c n' }, 'userattr'],
  [{ starttls: 'perhaps' }, 'starttls'],
  [{ url: 'ldaps://dc1', starttls: true }, 'starttls'],
  [{ insecure_tls: 2 }, 'insecure_tls'],
  [{ tls_min_version: 'ssl3' }, 'tls_min_version'],
  [{ tls_min_version: 'tls13' }, 'tls_max_version'],
  [{ certificate: 'not pem' }, 'certificate'],
  [{ certificate: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----' }, 'certificate'],
  [{ client_tls_cert: 'x' }, 'client_tls_key'],
  [{ client_tls_key: 'x' }, 'client_tls_cert'],
  [{ client_tls_cert: 'x', client_tls_key: 'y' }, 'client_tls_cert'],
  [{ request_timeout: -1 }, 'request_timeout'],
  [{ connection_timeout: 'soon' }, 'connection_timeout'],
  [{ length: 20, password_policy: 'strong' }, 'length and password_policy'],
  [{ length: -1 }, 'length'],
  [{ length: 1.5 }, 'length'],
  [{ credential_type: 'pin' }, 'credential_type'],
  [{ credential_type: 'phrase' }, 'credential_type'],
  [{ dereference_aliases: 'sometimes' }, 'dereference_aliases'],
  [{ max_page_size: -1 }, 'max_page_size'],
  [{ userfilter: '({{.UserAttr}' }, 'userfilter'],
  [{ groupfilter: '(member={{.UserDN)' }, 'groupfilter'],
  [{ rotation_period: 4 }, 'rotation_period'],
  [{ rotation_period: 60, rotation_schedule: '0 3 * * 6' }, 'rotation_period and rotation_schedule'],
  [{ rotation_window: 3600 }, 'rotation_window'],
  [{ rotation_period: 60, rotation_window: 3600 }, 'rotation_window'],
  [{ rotation_schedule: '0 3 * * 6', rotation_window: 60 }, 'rotation_window'],
  [{ rotation_schedule: '@daily' }, 'rotation_schedule'],
  [{ rotation_schedule: '0 0 3 * * 6' }, 'rotation_schedule'],
  [{ ttl: 'x' }, 'ttl'],
  [{ adopt: true }, 'adopt'],
  [{ disown: true }, 'disown'],
  [{ prove: true }, 'prove'],
]

const creation = { username: 'static-2', rotation_period: '1h' }
const created: readonly (readonly [Record<string, unknown>, string])[] = [
  [{ rotation_period: '1h' }, 'username'],
  [{ username: ' ', rotation_period: '1h' }, 'username'],
  [{ username: 'static-2' }, 'rotation_period'],
  [{ ...creation, rotation_period: 4 }, 'rotation_period'],
  [{ ...creation, rotation_period: '' }, 'rotation_period'],
  [{ ...creation, rotation_period: 'abc' }, 'rotation_period'],
  [{ ...creation, rotation_period: -1 }, 'rotation_period'],
  [{ ...creation, dn: 'static-2' }, 'dn'],
  [{ ...creation, skip_import_rotation: 'maybe' }, 'skip_import_rotation'],
  [{ ...creation, adopt: true }, 'adopt'],
  [{ ...creation, username: 'nobody-by-that-name' }, 'no entry'],
  [{ ...creation, dn: 'uid=absent,dc=example,dc=test' }, 'no entry'],
  [{ ...creation, username: 'static-1' }, 'already managed'],
  [{ ...creation, username: 'STATIC-1' }, 'already managed'],
  [{ username: 'other', dn: 'UID=Static-1, OU=services,DC=example,DC=test', rotation_period: 60 }, 'already managed'],
  [{ username: 'svc', dn: 'CN=svc-manager, ou=services,dc=example,dc=test', rotation_period: 60 }, 'itself binds as'],
]
const names = ['a//b', 'a/./b', 'a/../b', '-a', 'a-', 'a b', 'ä', '.a', `a${'b'.repeat(600)}`]
const updates: readonly (readonly [Record<string, unknown>, string])[] = [
  [{ username: 'static-2' }, 'username'],
  [{ dn: 'uid=static-1,ou=services,dc=example,dc=test' }, 'dn'],
  [{ skip_import_rotation: false }, 'skip_import_rotation'],
  [{ rotation_period: 1 }, 'rotation_period'],
]

export const LDAP_REFUSALS: readonly Refusal[] = [
  ...config.map(([fields, fragment]) => write('config', fields, fragment)),
  ...created.map(([fields, fragment]) => write('static-role/new', fields, fragment)),
  ...names.map((name) => write(`static-role/${name}`, creation, 'name')),
  ...updates.map(([fields, fragment]) => write('static-role/team/app', fields, fragment)),
  { operation: 'read', path: 'static-cred/absent', kind: 'invalid', fragment: 'unknown role' },
  { operation: 'read', path: 'static-role/a//b', kind: 'invalid', fragment: 'name' },
  { operation: 'delete', path: 'static-role/a//b', kind: 'invalid', fragment: 'name' },
  { operation: 'write', path: 'static-role', fields: creation, kind: 'unsupported', fragment: 'unsupported' },
  { operation: 'write', path: 'rotate-role/absent', kind: 'invalid', fragment: "role doesn't exist" },
]
