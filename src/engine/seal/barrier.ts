/**
 * Seals and opens the values of the store: AES-256-GCM under a data key of the keyring, the record's key as associated data, so that
 * a value moved to another key does not open. Throws `unavailable` for the reason `store-damaged` when it does not open: damage, our bug or
 * somebody's hand in the file.
 */
export interface Barrier {
  seal(key: string, plain: Uint8Array): Buffer
  open(key: string, sealed: Uint8Array): Buffer
  /** A keyed hash for what must be found again but not read: token ids as record keys, secrets in audit records. Hex. */
  hash(purpose: string, text: string): string
}
