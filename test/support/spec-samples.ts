/**
 * Specs that must be accepted, and specs that must be refused and why: one for every rule. The same samples go through the check functions
 * (unit tests) and through CEL and the structural schema (a real API server, `test/e2e/`).
 */
export interface Sample {
  readonly title: string
  readonly kind: 'AccessPolicy' | 'LdapAuth' | 'LdapEngine' | 'LdapGroupMapping' | 'LdapStaticRole'
  readonly spec: Readonly<Record<string, unknown>>
  /** The spec before, for rules about what may not change. */
  readonly old?: Readonly<Record<string, unknown>>
  /** Part of the message; undefined for a spec that is fine. */
  readonly refused?: string
}

const role = (more: object = {}) => ({ engineRef: { name: 'corp' }, username: 'svc', rotationPeriod: '1h', ...more })
const engine = (more: object = {}) => ({
  urls: ['ldap://127.0.0.1:389'],
  bindDN: 'cn=svc,dc=example',
  bindPasswordSecretRef: { name: 'bind', key: 'password' },
  ...more,
})
const tenant = (more: object = {}) => ({
  tenancy: [{ namespaces: { names: ['demo'] }, kinds: ['StaticRole'], allowedDNs: ['dc=example'], ...more }],
})
const auth = (more: object = {}) => ({ urls: ['ldaps://dc1.example'], ...more })
const mapping = (more: object = {}) => ({ authRef: { name: 'people' }, groupName: 'Ops', policies: ['ops'], ...more })

const roles: Sample[] = [
  ['plain', role()],
  ['digits are seconds', role({ rotationPeriod: '5' })],
  ['days', role({ rotationPeriod: '1d12h' })],
  ['period of 4 s in digits', role({ rotationPeriod: '4' }), 'at least 5 seconds'],
  ['period of 4 s as duration', role({ rotationPeriod: '4s' }), 'at least 5 seconds'],
  ['period of 4999 ms', role({ rotationPeriod: '4999ms' }), 'at least 5 seconds'],
  ['negative period', role({ rotationPeriod: '-1h' }), 'rotationPeriod'],
  ['empty period', role({ rotationPeriod: '' }), 'rotationPeriod'],
  ['no username', { engineRef: { name: 'corp' }, rotationPeriod: '1h' }, 'username'],
  ['role name with ..', role({ roleName: 'a/../b' }), 'roleName'],
  ['role name with a leading slash', role({ roleName: '/a' }), 'roleName'],
  ['role name in a folder', role({ roleName: 'team/app.v1' })],
  [
    'whole output',
    role({
      output: {
        name: 'x',
        type: 'kubernetes.io/basic-auth',
        mode: 'Create',
        template: { url: 'u={{.Username}}' },
        includePreviousPassword: true,
        labels: { a: 'b' },
        annotations: { c: 'd' },
        deletionPolicy: 'Retain',
      },
    }),
  ],
  ['tls without keys', role({ output: { type: 'kubernetes.io/tls' } }), 'needs tls.crt and tls.key'],
  [
    'tls with one key',
    role({ output: { type: 'kubernetes.io/tls', template: { 'tls.crt': 'x' } } }),
    'needs tls.crt and tls.key',
  ],
  ['tls with both keys', role({ output: { type: 'kubernetes.io/tls', template: { 'tls.crt': 'x', 'tls.key': 'y' } } })],
  ['ssh-auth without its key', role({ output: { type: 'kubernetes.io/ssh-auth' } }), 'needs ssh-privatekey'],
  ['dockercfg without its key', role({ output: { type: 'kubernetes.io/dockercfg' } }), 'needs .dockercfg in'],
  [
    'docker login without its key',
    role({ output: { type: 'kubernetes.io/dockerconfigjson' } }),
    'needs .dockerconfigjson',
  ],
  [
    'docker login',
    role({ output: { type: 'kubernetes.io/dockerconfigjson', template: { '.dockerconfigjson': '{}' } } }),
  ],
  ['bootstrap token', role({ output: { type: 'bootstrap.kubernetes.io/token' } }), 'belongs to Kubernetes'],
  ['ssh-auth with its key', role({ output: { type: 'kubernetes.io/ssh-auth', template: { 'ssh-privatekey': 'x' } } })],
  ['service account token', role({ output: { type: 'kubernetes.io/service-account-token' } }), 'belongs to Kubernetes'],
  ['key with a slash', role({ output: { template: { 'a/b': 'x' } } }), 'keys may hold letters'],
  ['label of ours', role({ output: { labels: { 'keyturn.dev/owner-uid': 'x' } } }), 'written by Keyturn'],
  ['annotation of ours', role({ output: { annotations: { 'keyturn.dev/source': 'x' } } }), 'written by Keyturn'],
  ['unknown mode', role({ output: { mode: 'Replace' } }), 'mode'],
].map(sampleOf('LdapStaticRole'))

const roleChanges: Sample[] = [
  ['period changed', role({ rotationPeriod: '2h' }), undefined, role()],
  ['nothing changed', role({ dn: 'cn=a' }), undefined, role({ dn: 'cn=a' })],
  ['engineRef changed', role({ engineRef: { name: 'b' } }), 'engineRef cannot be changed', role()],
  ['username changed', role({ username: 'b' }), 'username cannot be changed', role()],
  ['dn added', role({ dn: 'cn=a' }), 'dn cannot be changed', role()],
  ['dn removed', role(), 'dn cannot be changed', role({ dn: 'cn=a' })],
  ['dn changed', role({ dn: 'cn=b' }), 'dn cannot be changed', role({ dn: 'cn=a' })],
  ['roleName added', role({ roleName: 'x' }), 'roleName cannot be changed', role()],
  ['skipImportRotation added', role({ skipImportRotation: true }), 'skipImportRotation cannot', role()],
  ['output added', role({ output: { name: 'x' } }), undefined, role()],
  ['output renamed', role({ output: { name: 'y' } }), 'name cannot be changed', role({ output: { name: 'x' } })],
  [
    'a label whose value is none',
    role({ output: { labels: { team: 'not a label' } } }),
    'the value of a label may hold letters',
  ],
  [
    'labels and annotations with prefixes',
    role({ output: { labels: { 'a.b/c_d': '' }, annotations: { 'x.y/Z': '{}' } } }),
  ],
  [
    'an annotation whose name is none',
    role({ output: { annotations: { 'a b': 'c' } } }),
    'must be named as Kubernetes has it',
  ],
  ['output type added', role({ output: { type: 'Opaque' } }), 'type cannot be changed', role({ output: {} })],
].map(sampleOf('LdapStaticRole'))

const engines: Sample[] = [
  ['plain', engine()],
  [
    'everything',
    engine({
      path: 'corp/main',
      description: 'x',
      schema: 'ad',
      userDN: 'dc=x',
      userAttr: 'cn',
      upnDomain: 'x.test',
      requestTimeout: '30s',
      tls: {
        startTLS: true,
        insecureSkipVerify: false,
        minVersion: 'tls12',
        maxVersion: 'tls13',
        caBundle: 'pem',
        clientCertSecretRef: { name: 'c' },
      },
      skipStaticRoleImportRotation: true,
      defaultLeaseTTL: '1h',
      maxLeaseTTL: '768h',
      deletionPolicy: 'Delete',
      ...tenant({
        allowedGroupDNs: ['dc=g'],
        deniedDNs: ['dc=d'],
        minRotationPeriod: '1h',
        maxTTL: '24h',
        maxRoles: 200,
        freeRoleNames: false,
      }),
    }),
  ],
  ['no url', engine({ urls: [] }), 'urls'],
  ['http url', engine({ urls: ['http://x'] }), 'urls'],
  ['two urls in one', engine({ urls: ['ldap://a,ldap://b'] }), 'urls'],
  [
    'startTLS with ldaps',
    engine({ urls: ['ldap://a', 'ldaps://b'], tls: { startTLS: true } }),
    'cannot be used with ldaps',
  ],
  ['startTLS false with ldaps', engine({ urls: ['ldaps://b'], tls: { startTLS: false } })],
  ['two CAs', engine({ tls: { caBundle: 'x', caSecretRef: { name: 'a', key: 'b' } } }), 'only one of'],
  [
    'minimum above maximum',
    engine({ tls: { minVersion: 'tls13', maxVersion: 'tls12' } }),
    'minVersion must not be above',
  ],
  ['minimum above the default maximum', engine({ tls: { minVersion: 'tls13' } }), 'minVersion must not be above'],
  ['path with ..', engine({ path: 'a/../b' }), 'path'],
  ['tenancy by label', engine(tenant({ namespaces: { selector: { matchLabels: { team: 'a' } } } }))],
  [
    'tenancy by expression',
    engine(tenant({ namespaces: { selector: { matchExpressions: [{ key: 'team', operator: 'Exists' }] } } })),
  ],
  ['tenancy for nobody', engine(tenant({ namespaces: {} })), 'names or selector is required'],
  ['tenancy by an empty selector', engine(tenant({ namespaces: { selector: {} } })), 'names or selector is required'],
  [
    'tenancy by a NotIn without values, which would be everybody',
    engine(tenant({ namespaces: { selector: { matchExpressions: [{ key: 'team', operator: 'NotIn' }] } } })),
    'In and NotIn need values',
  ],
  [
    'tenancy by an Exists with values',
    engine(
      tenant({ namespaces: { selector: { matchExpressions: [{ key: 'a', operator: 'Exists', values: ['b'] }] } } }),
    ),
    'Exists and DoesNotExist take none',
  ],
  ['tenancy without DNs', engine(tenant({ allowedDNs: [] })), 'allowedDNs'],
  ['tenancy with an empty DN', engine(tenant({ allowedDNs: [''] })), 'allowedDNs'],
  ['tenancy with a period of 4 s', engine(tenant({ minRotationPeriod: '4s' })), 'must be at least 5 seconds'],
  ['tenancy with leases of no time', engine(tenant({ maxTTL: '0' })), 'must be at least 1 seconds'],
  ['no time for requests', engine({ requestTimeout: '999ms' }), 'must be at least 1 seconds'],
  ['tenancy of an unknown kind', engine(tenant({ kinds: ['Everything'] })), 'kinds'],
].map(sampleOf('LdapEngine'))

const engineChanges: Sample[] = [
  ['urls changed', engine({ urls: ['ldap://b'] }), undefined, engine()],
  ['path added', engine({ path: 'x' }), 'path cannot be changed', engine()],
  ['path kept', engine({ path: 'x', description: 'y' }), undefined, engine({ path: 'x' })],
  ['path removed', engine(), 'path cannot be changed', engine({ path: 'x' })],
  ['schema changed', engine({ schema: 'ad' }), 'schema cannot be changed', engine({ schema: 'racf' })],
].map(sampleOf('LdapEngine'))

const auths: Sample[] = [
  ['plain', auth()],
  ['null bind unacknowledged', auth({ denyNullBind: false }), 'acknowledgeNullBind'],
  ['null bind acknowledged', auth({ denyNullBind: false, acknowledgeNullBind: true })],
  ['bindDN alone', auth({ bindDN: 'cn=x' }), 'go together'],
  ['password alone', auth({ bindPasswordSecretRef: { name: 'a', key: 'b' } }), 'go together'],
  ['sAMAccountName without a domain', auth({ enableSamaccountnameLogin: true }), 'needs upnDomain'],
  ['negative uses', auth({ token: { numUses: -1 } }), 'numUses'],
  ['no time to connect', auth({ connectionTimeout: '0s' }), 'must be at least 1 seconds'],
  ['no time for requests', auth({ requestTimeout: '0' }), 'must be at least 1 seconds'],
  ['lock-out for no time', auth({ lockout: { duration: '1ms' } }), 'must be at least 1 seconds'],
  ['failures forgotten at once', auth({ lockout: { counterReset: '0s' } }), 'must be at least 1 seconds'],
  ['two CAs', auth({ tls: { caBundle: 'x', caConfigMapRef: { name: 'a', key: 'b' } } }), 'only one of'],
  ['minimum above maximum', auth({ tls: { minVersion: 'tls13' } }), 'minVersion must not be above'],
  ['one CA, newest TLS', auth({ tls: { caConfigMapRef: { name: 'a', key: 'b' }, maxVersion: 'tls13' } })],
  ['startTLS with ldaps', auth({ tls: { startTLS: true } }), 'cannot be used with ldaps'],
  ['startTLS', auth({ urls: ['ldap://dc1.example'], tls: { startTLS: true } })],
  [
    'tokens and lock-out',
    auth({
      token: { ttl: '1h', maxTTL: '8h', policies: ['people'], boundCIDRs: ['10.0.0.0/8'], type: 'default' },
      lockout: { threshold: 3, duration: '15m', counterReset: '15m', disabled: false },
    }),
  ],
].map(sampleOf('LdapAuth'))

const authChanges: Sample[] = [
  ['path added', auth({ path: 'x' }), 'path cannot be changed', auth()],
  ['urls changed', auth({ urls: ['ldaps://dc2.example'] }), undefined, auth()],
].map(sampleOf('LdapAuth'))

const others: Sample[] = [
  ...[
    ['plain', mapping()],
    ['group with spaces', mapping({ groupName: 'Database Admins, north' })],
    ['policy twice', mapping({ policies: ['a', 'a'] }), 'policies'],
  ].map(sampleOf('LdapGroupMapping')),
  sampleOf('LdapGroupMapping')([
    'group changed',
    mapping({ groupName: 'b' }),
    'groupName cannot be changed',
    mapping(),
  ]),
  sampleOf('LdapGroupMapping')([
    'auth changed',
    mapping({ authRef: { name: 'b' } }),
    'authRef cannot be changed',
    mapping(),
  ]),
  sampleOf('LdapGroupMapping')(['policies changed', mapping({ policies: [] }), undefined, mapping()]),
  ...[
    [
      'rules',
      {
        rules: [
          { path: 'ldap/*', capabilities: ['read'], allowedParameters: { a: ['b'], c: [] }, requiredParameters: ['a'] },
        ],
      },
    ],
    ['text', { policy: 'path "a" { capabilities = ["read"] }' }],
    ['neither', {}, 'exactly one of'],
    ['no rules', { rules: [] }, 'exactly one of'],
    ['both', { rules: [{ path: 'a', capabilities: ['read'] }], policy: 'x' }, 'exactly one of'],
    ['unknown capability', { rules: [{ path: 'a', capabilities: ['fly'] }] }, 'capabilities'],
    ['no capability', { rules: [{ path: 'a', capabilities: [] }] }, 'capabilities'],
  ].map(sampleOf('AccessPolicy')),
]

export const SAMPLES: readonly Sample[] = [
  ...roles,
  ...roleChanges,
  ...engines,
  ...engineChanges,
  ...auths,
  ...authChanges,
  ...others,
]

function sampleOf(kind: Sample['kind']) {
  return (row: readonly unknown[]): Sample => {
    const [title, spec, refused, old] = row
    return {
      title: String(title),
      kind,
      spec: { ...(spec as object) },
      ...(typeof refused === 'string' && { refused }),
      ...(old !== undefined && { old: { ...(old as object) } }),
    }
  }
}
