import { expect } from 'vitest'
import type { Keyturn, Reply } from './keyturn.ts'
import { type Slapd, SUFFIX } from './slapd.ts'

export const PEOPLE = `ou=people,${SUFFIX}`
export const GROUPS = `ou=groups,${SUFFIX}`
export const READER = { binddn: `cn=svc-reader,ou=services,${SUFFIX}`, bindpass: 'svc-reader-secret' }

/** Mounts of the LDAP login method, and logins through the API. */
export interface LoginLab {
  /** A mount of its own for a test, configured for the seeded directory and the service's identity, unless told otherwise. */
  mounted(config?: Record<string, unknown>): Promise<string>
  login(mount: string, username: string, password: string): Promise<Reply>
  renew(token: string): Promise<Reply>
}

let mounts = 0

export function loginLab(parts: () => { readonly keyturn: Keyturn; readonly slapd: Slapd }): LoginLab {
  return {
    async mounted(config = {}) {
      const { keyturn, slapd } = parts()
      const mount = `people-${++mounts}`
      expect((await keyturn.call('POST', `sys/auth/${mount}`, { type: 'ldap' })).status).toBe(204)
      const base = { url: slapd.url, userdn: PEOPLE, userattr: 'uid', ...READER }
      const written = await keyturn.call('POST', `auth/${mount}/config`, { ...base, ...config })
      expect([200, 204], written.text).toContain(written.status)
      return mount
    },
    login: (mount, username, password) =>
      parts().keyturn.call(
        'POST',
        `auth/${mount}/login/${encodeURIComponent(username)}`,
        { password },
        { token: null },
      ),
    renew: (token) => parts().keyturn.call('POST', 'auth/token/renew-self', {}, { token }),
  }
}
