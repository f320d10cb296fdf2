import type { Answer } from '../client/client.ts'
import { AppError, invalid } from '../lib/errors.ts'
import { Secret } from '../lib/secret.ts'
import { type CommandContext, show } from './command.ts'
import { readFields, withoutLineEnd } from './fields.ts'
import { formatJson, table } from './format.ts'
import { saveToken } from './token-file.ts'

/** Logs in by directory password or with a token, and keeps the token that later commands use. */
export async function login(context: CommandContext): Promise<void> {
  switch (context.flags.method) {
    case 'ldap':
      return loginLdap(context)
    case 'token':
      return loginToken(context)
    default:
      throw invalid('--method must be ldap or token')
  }
}

async function loginLdap(context: CommandContext): Promise<void> {
  const { client, words, flags, config, io } = context
  // A bare word is the name: `keyturn login alice`.
  const named = words.map((word, i) => (i === 0 && word !== '-' && !word.includes('=') ? `username=${word}` : word))
  const { username, password, ...others } = await readFields(named, io.readAll)
  const stray = Object.keys(others)[0]
  if (stray !== undefined) throw invalid(`login knows username and password, not "${stray}"`)
  if (typeof username !== 'string' || username === '') throw invalid('the name is missing: keyturn login username=NAME')
  const secret =
    typeof password === 'string'
      ? password
      : (config.ldapPassword ?? (await ask(context, `Password for ${username}: `)))
  const answer = await client.login(flags.path ?? 'ldap', username, new Secret(secret))
  await keep(answer, context)
}

async function loginToken(context: CommandContext): Promise<void> {
  const { client, words, io, flags, config } = context
  if (words.length > 1) throw invalid('give one token, or - to read it from standard input')
  const word = words[0]
  const token =
    word === '-'
      ? withoutLineEnd(await io.readAll())
      : (word ?? flags.token ?? config.token ?? (await ask(context, 'Token: ')))
  const answer = await client.read('auth/token/lookup-self', {}, { token: new Secret(token) })
  if (!answer) throw invalid('the server knows nothing of this token')
  if (!flags.noStore) await saveToken(config.tokenFile, new Secret(token))
  io.err(flags.noStore ? 'The token is good.\n' : `The token is good and kept in ${config.tokenFile}.\n`)
}

async function ask({ io }: CommandContext, prompt: string): Promise<string> {
  try {
    return await io.askSecret(prompt)
  } catch (cause) {
    if (cause instanceof AppError && cause.reason === 'interrupted') throw cause
    throw invalid('no password: set SERVICE_LDAP_PASSWORD, or give password=- to read it from standard input', {
      cause,
    })
  }
}

async function keep(answer: Answer, context: CommandContext): Promise<void> {
  const { flags, config, io } = context
  const { client_token: token, ...about } = answer.auth ?? {}
  if (typeof token !== 'string') throw new Error('the login was answered without a token')
  if (!flags.noStore) await store(new Secret(token), context)
  if (flags.field !== undefined) {
    const named = flags.field === 'token' ? { ...answer, data: { token } } : answer
    return show(named, context)
  }
  for (const warning of answer.warnings) io.err(`Warning: ${warning}\n`)
  if (flags.format !== 'table') return io.out(formatJson({ auth: { client_token: token, ...about } }, flags.format))
  if (!flags.noStore) io.out(`Logged in. The token is kept in ${config.tokenFile}.\n\n`)
  const rows = Object.entries(about).filter(([, value]) => value !== null)
  io.out(table('Key', 'Value', flags.noStore ? [['token', token], ...rows] : rows))
}

/** Keeps a token that nobody else knows; where it cannot be kept, it shall not live on. */
async function store(token: Secret, { client, config }: CommandContext): Promise<void> {
  try {
    await saveToken(config.tokenFile, token)
  } catch (error) {
    await client.write('auth/token/revoke-self', {}, { token }).catch(() => undefined)
    throw error
  }
}
