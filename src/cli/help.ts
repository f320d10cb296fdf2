import { CONTROLLER_FLAGS, DEV_FLAGS, type FlagTable, RESTORE_FLAGS, SERVER_FLAGS } from '../config.ts'
import { EXIT_CODES } from './exit.ts'

export interface Help {
  readonly name: string
  readonly usage: string
  readonly summary: string
  readonly more?: string
  /** Of its own, besides those of every command. */
  readonly flags?: FlagTable
  readonly example: string
}

/** The processes that the same program runs; their flags are read by `config.ts`. */
export const PROCESS_HELP: readonly Help[] = [
  {
    name: 'server',
    usage: 'server [FLAGS]',
    summary: 'Run the credential engine and its API',
    flags: SERVER_FLAGS,
    example: 'keyturn server --data /var/lib/keyturn --listen 0.0.0.0:8200',
  },
  {
    name: 'controller',
    usage: 'controller [FLAGS]',
    summary: 'Run the operator beside a server, over a cluster or a directory of manifests',
    flags: CONTROLLER_FLAGS,
    example: 'keyturn controller --socket /run/keyturn/keyturn.sock',
  },
  {
    name: 'dev',
    usage: 'dev --manifests DIR --secrets DIR [FLAGS]',
    summary: 'Run everything in one process, without a cluster',
    flags: DEV_FLAGS,
    example: 'keyturn dev --manifests ./manifests --secrets ./secrets --data ./data --listen 127.0.0.1:8200',
  },
  {
    name: 'restore',
    usage: 'restore FILE --data DIR [FLAGS]',
    summary: 'Put a backup where no store is yet',
    more: '--bind-password is for a mount whose managing account got another password since the backup.',
    flags: RESTORE_FLAGS,
    example: 'keyturn restore /backups/keyturn.db --data /var/lib/keyturn --seal-key /secure/seal-key',
  },
]

/** What `cli.ts` answers without a server. */
export const OWN_HELP: readonly Help[] = [
  {
    name: 'version',
    usage: 'version',
    summary: 'Show the version',
    example: 'keyturn version',
  },
  {
    name: 'help',
    usage: 'help [COMMAND]',
    summary: 'Show all commands, or more about one',
    example: 'keyturn help server',
  },
]

const GLOBAL_FLAGS = [
  '--address URL      where the server is: https://…, http://… or unix:/… (KEYTURN_ADDR; https://127.0.0.1:8200)',
  '--token TOKEN      who asks (KEYTURN_TOKEN; else what login left in ~/.keyturn-token)',
  '--ca-cert FILE     the CA to trust (KEYTURN_CACERT)',
  '--insecure         take any certificate; for trying out (KEYTURN_INSECURE=true)',
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
    ...[...commands, ...OWN_HELP].map(line),
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
    'More about one: keyturn help COMMAND',
    '',
  ].join('\n')
}

export function helpOf({ usage, summary, more, flags, example }: Help): string {
  return [
    `Usage: keyturn ${usage}`,
    '',
    `${summary}.`,
    ...(more ? ['', more] : []),
    ...(flags ? ['', ...flagLines(flags)] : []),
    '',
    'Example:',
    `  ${example}`,
    '',
  ].join('\n')
}

function flagLines(flags: FlagTable): string[] {
  const spelled = Object.entries(flags).map(([name, { takes }]) => `--${name}${takes ? ` ${takes}` : ''}`)
  const width = Math.max(...spelled.map((text) => text.length))
  const lines = Object.values(flags).map(({ about, default: fallback }, at) => {
    const usual = typeof fallback === 'string' && fallback !== '' ? ` (${fallback})` : ''
    return `  ${(spelled[at] ?? '').padEnd(width)}  ${about}${usual}`
  })
  return [
    'Flags, also environment variables where not said otherwise (--data is KEYTURN_DATA, --log-level KEYTURN_LOG_LEVEL):',
    ...lines,
  ]
}
