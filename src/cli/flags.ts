import { parseArgs } from 'node:util'
import { invalid, messageOf } from '../lib/errors.ts'
import { type Format, requireFormat } from './format.ts'

export interface CliFlags {
  readonly words: readonly string[]
  readonly address: string | undefined
  readonly token: string | undefined
  readonly caCertFile: string | undefined
  readonly insecure: boolean
  readonly format: Format
  readonly field: string | undefined
  readonly help: boolean
  readonly method: string
  readonly path: string | undefined
  readonly noStore: boolean
}

const OPTIONS = {
  address: { type: 'string' },
  token: { type: 'string' },
  'ca-cert': { type: 'string' },
  insecure: { type: 'boolean' },
  format: { type: 'string' },
  field: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  method: { type: 'string' },
  path: { type: 'string' },
  'no-store': { type: 'boolean' },
} as const

const LOGIN_ONLY = ['method', 'path', 'no-store'] as const

/** Reads a command's flags, `--flag` and `-flag` alike, anywhere among its words. Throws `invalid`. */
export function readFlags(command: string, args: readonly string[]): CliFlags {
  const spelled = args.map((arg) => (/^-[a-z][a-z-]+(=|$)/.test(arg) ? `-${arg}` : arg))
  try {
    const { values, positionals } = parseArgs({ args: spelled, options: OPTIONS, allowPositionals: true })
    const stray = command === 'login' ? undefined : LOGIN_ONLY.find((name) => values[name] !== undefined)
    if (stray) throw invalid(`--${stray} is a flag of login`)
    if (command === 'list' && values.field !== undefined) throw invalid('--field is not for list: it gives no fields')
    return {
      words: positionals,
      address: values.address,
      token: values.token,
      caCertFile: values['ca-cert'],
      insecure: values.insecure ?? false,
      format: requireFormat(values.format ?? 'table'),
      field: values.field,
      help: values.help ?? false,
      method: values.method ?? 'ldap',
      path: values.path,
      noStore: values['no-store'] ?? false,
    }
  } catch (error) {
    throw invalid(messageOf(error).split('. To specify', 1)[0] ?? '')
  }
}
