import { invalid } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import type { AttributeChange, Schema } from './directory.ts'

/**
 * How each kind of directory is told a new password, as octets: OpenLDAP takes the clear text (its policy overlay hashes it),
 * Active Directory quoted UTF-16LE (MS-ADTS 3.1.1.3.1.5), RACF an attribute for each credential type and word that it is not to expire.
 */
export function passwordChanges(
  schema: Schema,
  password: Secret,
  credentialType: 'password' | 'phrase' = 'password',
): AttributeChange[] {
  const clear = password.reveal()
  if (clear === '') throw invalid('a password must not be empty')
  switch (schema) {
    case 'openldap':
      return [{ attribute: 'userPassword', values: [Buffer.from(clear, 'utf8')] }]
    case 'ad':
      return [{ attribute: 'unicodePwd', values: [Buffer.from(`"${clear}"`, 'utf16le')] }]
    case 'racf':
      return [
        {
          attribute: credentialType === 'phrase' ? 'racfPassPhrase' : 'racfPassword',
          values: [Buffer.from(clear, 'utf8')],
        },
        { attribute: 'racfAttributes', values: [Buffer.from('noexpired')] },
      ]
    default:
      return schema satisfies never
  }
}
