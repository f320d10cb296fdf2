/**
 * What protects the keyring at rest: a key file today, a key service of a cloud later. It wraps a few hundred octets once, when a
 * store is made, and unwraps them at each start.
 */
export interface Seal {
  wrap(plain: Uint8Array): Promise<Uint8Array>
  /** Throws `invalid` when this seal did not wrap it, `unavailable` when it cannot tell now. */
  unwrap(wrapped: Uint8Array): Promise<Uint8Array>
}
