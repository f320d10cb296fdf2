import { EXIT_CODES } from './exit.ts'

export interface Help {
  readonly name: string
  readonly usage: string
  readonly summary: string
  readonly more?: string
  readonly example: string
}

/** The processes that the same program runs; their flags are read by `config.ts`. */
export const PROCESS_HELP: readonly Help[] = [
  {
    name: 'server',
    usage: 'server [--data DIR] [--listen HOST:PORT] [--socket PATH] [--tls-cert FILE --tls-key FILE]',
    summary: 'Run the credential engine and its API',
    example: 'keyturn server --data /var/lib/keyturn --listen 0.0.0.0:8200',
  },
  {
    name: 'controller',
    usage: 'controller [--socket PATH] [--namespace NAME] [--manifests DIR --secrets DIR]',
    summary: 'Run the operator beside a server',
    example: 'keyturn controller --socket /run/keyturn/keyturn.sock',
  },
  {
    name: 'dev',
    usage: 'dev --manifests DIR --secrets DIR [--data DIR] [--listen HOST:PORT]',
    summary: 'Run everything in one process, without a cluster',
    example: 'keyturn dev --manifests ./manifests --secrets ./secrets --data ./data --listen 127.0.0.1:8200',
  },
  {
    name: 'restore',
    usage: 'restore FILE [--data DIR] [--seal-key FILE] [--bind-password [MOUNT=]FILE ...]',
    summary: 'Put a backup in place of an empty store',
    more:
      'The seal key is that of the store that was backed up. --bind-password gives a mount (ldap/ when none is named) the password that it\n' +
      'binds with now, where it has turned since the backup: a file, or - for standard input.',
    example: 'keyturn restore /backups/keyturn.db --data /var/lib/keyturn',
  },
]

const GLOBAL_FLAGS = [
  '--address URL      where the server is: https://…, http://… or unix:/… (KEYTURN_ADDR; https://127.0.0.1:8200)',
  '--token TOKEN      who asks (KEYTURN_TOKEN; else what login left in ~/.keyturn-token)',
  '--ca-cert FILE     the CA to trust (KEYTURN_CACERT)',
  '--insecure         take any certificate; for trying out',
  '--format FORMAT    table, json or yaml',
  '--field NAME       only this field of the answer, as it is',
]

export function overview(commands: readonly Help[]): string {
  const width = Math.max(...[...commands, ...PROCESS_HELP].map(({ name }) => name.length))
  const line = ({ name, summary }: Help) => `  ${name.padEnd(width)}  ${summary}`
  return [
    'Usage: keyturn COMMAND [FLAGS] [ARGUMENTS]',
    '',
    'Commands:',
    ...commands.map(line),
    '',
    'Processes:',
    ...PROCESS_HELP.map(line),
    '',
    'Flags of every command:',
    ...GLOBAL_FLAGS.map((flag) => `  ${flag}`),
    '',
    'Exit codes:',
    ...EXIT_CODES.map((code) => `  ${code}`),
    '',
    'More about one command: keyturn help COMMAND',
    '',
  ].join('\n')
}

export function helpOf({ usage, summary, more, example }: Help): string {
  return [
    `Usage: keyturn ${usage}`,
    '',
    `${summary}.`,
    ...(more ? ['', more] : []),
    '',
    'Example:',
    `  ${example}`,
    '',
  ].join('\n')
}
