import * as z from 'zod'
import { choice, duration, flag, integer } from './fields.ts'
import { connectionFields, connectionSpelling } from './ldap-connection.ts'
import { wire } from './wire.ts'

export const DIRECTORY_SCHEMAS = ['openldap', 'ad', 'racf'] as const

/** Fields of `ldap/config`. Many are only kept and returned, because the shape is shared with the LDAP login method. */
export const LdapEngineConfig = z.object({
  ...connectionFields,
  schema: choice(DIRECTORY_SCHEMAS),
  credentialType: choice(['password', 'phrase']),
  length: integer({ min: 0, max: 4096 }),
  skipStaticRoleImportRotation: flag(),
  ttl: duration(),
  maxTtl: duration(),
  adopt: flag().describe('For the controller: take over a configuration that no resource owns.'),
  disown: flag().describe('For the controller: leave the configuration to everybody.'),
  prove: flag().describe('For the controller: a name and password that replace others must bind first.'),
})
export type LdapEngineConfig = z.output<typeof LdapEngineConfig>

export const LdapEngineConfigBody = wire(LdapEngineConfig, connectionSpelling)
