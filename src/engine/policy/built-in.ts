/** What everybody with a token may, until the operator writes another policy named `default`. */
export const DEFAULT_POLICY = `# What a token may do about itself.
path "auth/token/lookup-self" { capabilities = ["read"] }
path "auth/token/renew-self" { capabilities = ["update"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
path "sys/capabilities-self" { capabilities = ["update"] }
path "sys/internal/ui/resultant-acl" { capabilities = ["read"] }

# Leases: knowing the id is what gives the right.
path "sys/renew" { capabilities = ["update"] }
path "sys/leases/renew" { capabilities = ["update"] }
path "sys/leases/lookup" { capabilities = ["update"] }

# A drawer of its own, and answers in sealed envelopes.
path "cubbyhole/*" { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/wrapping/wrap" { capabilities = ["update"] }
path "sys/wrapping/lookup" { capabilities = ["update"] }
path "sys/wrapping/unwrap" { capabilities = ["update"] }

path "sys/control-group/request" { capabilities = ["update"] }
path "identity/oidc/provider/+/authorize" { capabilities = ["read", "update"] }
`

/** Name of the policy of the controller's token. It exists for that token only: not listed, not written, not granted. */
export const CONTROLLER_POLICY = 'keyturn-controller'

/**
 * The controller turns resources into mounts, roles and policies at whatever paths their owners choose; it makes no tokens, reads no
 * identities and of `sys/` only what is named here.
 */
export const CONTROLLER_POLICY_TEXT = `
path "*" { capabilities = ["create", "read", "update", "delete", "list"] }
path "auth/token/*" { capabilities = ["deny"] }
path "cubbyhole/*" { capabilities = ["deny"] }
path "identity/*" { capabilities = ["deny"] }
path "sys/*" { capabilities = ["deny"] }
path "auth/token/lookup-self" { capabilities = ["read"] }
path "sys/mounts" { capabilities = ["read", "list"] }
path "sys/mounts/*" { capabilities = ["create", "read", "update", "delete"] }
path "sys/auth" { capabilities = ["read", "list"] }
path "sys/auth/*" { capabilities = ["create", "read", "update", "delete", "sudo"] }
path "sys/policies/acl" { capabilities = ["list"] }
path "sys/policies/acl/*" { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/tenancy/*" { capabilities = ["create", "read", "update", "delete", "list"] }
path "sys/events" { capabilities = ["read"] }
path "sys/capabilities-self" { capabilities = ["update"] }
`
