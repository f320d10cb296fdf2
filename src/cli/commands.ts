import path from 'node:path'
import { invalid, notFound } from '../lib/errors.ts'
import { type Command, done, show } from './command.ts'
import { readFields } from './fields.ts'
import { formatKeys } from './format.ts'
import { login } from './login.ts'

export const COMMANDS: readonly Command[] = [
  {
    name: 'login',
    usage: 'login [--method ldap|token] [--path MOUNT] [--no-store] [username=]NAME [password=-]',
    summary: 'Log in and keep the token for later commands',
    more:
      'The password comes from SERVICE_LDAP_PASSWORD, VAULT_LDAP_PASSWORD or BAO_LDAP_PASSWORD, from standard input with\n' +
      'password=-, or is asked for. The token is kept in ~/.keyturn-token, readable by you alone.',
    example: 'keyturn login --method ldap username=alice',
    run: login,
  },
  {
    name: 'read',
    usage: 'read PATH [KEY=VALUE ...]',
    summary: 'Read what is at a path',
    example: 'keyturn read --field password ldap/static-cred/team-a/app',
    async run({ client, words, io, flags }) {
      const [target, ...rest] = requirePathWord(words)
      const answer = await client.read(target, await readFields(rest, io.readAll))
      if (!answer) throw notFound(`nothing is at ${target}`)
      show(answer, { io, flags })
    },
  },
  {
    name: 'write',
    usage: 'write PATH [KEY=VALUE | KEY=@FILE | KEY=- | @FILE | - ...]',
    summary: 'Write to a path',
    more: 'KEY=- reads the value, and - alone a whole JSON object, from standard input.',
    example: 'keyturn write ldap/static-role/team-a/app username=app rotation_period=24h',
    async run({ client, words, io, flags }) {
      const [target, ...rest] = requirePathWord(words)
      const answer = await client.write(target, await readFields(rest, io.readAll))
      if (answer) show(answer, { io, flags })
      else done(`Written: ${target}`, { io, flags })
    },
  },
  {
    name: 'list',
    usage: 'list PATH',
    summary: 'List what is below a path',
    example: 'keyturn list ldap/static-role',
    async run({ client, words, io, flags }) {
      const [target] = requirePathWord(words, 1)
      const keys = await client.list(target)
      if (keys.length === 0) throw notFound(`nothing is below ${target}`)
      io.out(formatKeys(keys, flags.format))
    },
  },
  {
    name: 'delete',
    usage: 'delete PATH [KEY=VALUE ...]',
    summary: 'Delete what is at a path',
    example: 'keyturn delete ldap/static-role/team-a/app',
    async run({ client, words, io, flags }) {
      const [target, ...rest] = requirePathWord(words)
      const answer = await client.delete(target, await readFields(rest, io.readAll))
      if (answer) show(answer, { io, flags })
      else done(`Deleted: ${target}`, { io, flags })
    },
  },
  {
    name: 'backup',
    usage: 'backup FILE',
    summary: 'Have the running server write a consistent copy of its store to a new file',
    more: 'The file is written by the server on its own machine and is sealed as the store is: keep the seal key too, elsewhere.',
    example: 'keyturn backup /backups/keyturn.db',
    async run({ client, words, io, flags }) {
      const [file] = requirePathWord(words, 1, 'FILE')
      const answer = await client.write('sys/storage/snapshot', { file: path.resolve(file) })
      if (answer && flags.format !== 'table') show(answer, { io, flags })
      else done(`Backup written: ${path.resolve(file)}`, { io, flags })
    },
  },
]

function requirePathWord(
  words: readonly string[],
  most = Number.POSITIVE_INFINITY,
  what = 'PATH',
): [string, ...string[]] {
  const [first, ...rest] = words
  if (first === undefined || first === '') throw invalid(`${what} is missing`)
  if (words.length > most) throw invalid(`too many arguments after ${what}`)
  return [first, ...rest]
}
