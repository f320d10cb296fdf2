import { invalid } from '../../lib/errors.ts'
import { type Random, randomText } from '../../lib/random.ts'
import { Secret } from '../../lib/secret.ts'

const DEFAULT_LENGTH = 64

/** What a mount says about its passwords: a length, or the name of a policy (never both: refused when the config is written). */
export interface PasswordRules {
  /** 0 or absent for the default of 64. */
  readonly length?: number
  /** Empty or absent for none. */
  readonly policy?: string
}

/** A new password of unbiased base62. Throws `invalid` when the rules name a policy that does not exist. */
export function generatePassword(rules: PasswordRules, random: Random): Secret {
  if (rules.policy) throw invalid(`the password policy "${rules.policy}" does not exist; no password was changed`)
  return new Secret(randomText(random, rules.length || DEFAULT_LENGTH))
}
