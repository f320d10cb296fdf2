import * as z from 'zod'

/**
 * What happened in the engine, as the event feed tells it (`GET sys/events`). An event is written in the commit that made it true.
 * It names objects and never holds a secret.
 */
export const eventCodec = z.object({
  /** For example `static-role-create`, `rotate`, `rotate-fail`, `config-write`. */
  type: z.string(),
  /** Path of the mount, with trailing slash: `ldap/`, `auth/ldap/`; `sys/` for the engine itself. */
  mount: z.string(),
  /** The object's path inside the mount, for example `static-role/payments/ledger-db`. */
  path: z.string(),
  /** Owner of the object, `cr:<uid>`, when a resource owns it. */
  owner: z.string().exactOptional(),
  /** Further facts, none of them secret: `credential_version`, `error_class`… */
  data: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).exactOptional(),
})
export type NewEvent = z.output<typeof eventCodec>
export type EngineEvent = NewEvent & { readonly number: number; readonly time: Date }
