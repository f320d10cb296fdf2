import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createClient } from '../client/client.ts'
import { httpTransport } from '../client/http.ts'
import { type CliConfig, cliConfig, type Environment } from '../config.ts'
import { systemClock } from '../lib/clock.ts'
import { AppError, invalid, messageOf } from '../lib/errors.ts'
import { systemRandom } from '../lib/random.ts'
import { Secret } from '../lib/secret.ts'
import type { Command } from './command.ts'
import { COMMANDS } from './commands.ts'
import { exitCode, hintFor } from './exit.ts'
import { type CliFlags, readFlags } from './flags.ts'
import { helpOf, OWN_HELP, overview, PROCESS_HELP } from './help.ts'
import { type Io, openProcessIo } from './io.ts'
import { readToken } from './token-file.ts'

/**
 * The commands that are clients of a server: the answer goes to standard output and nothing else does; what people should know goes to
 * standard error; the exit code says how it ended (`exit.ts`). The processes (server, controller, dev, restore) are `main.ts`'s.
 */
export async function runCli(
  args: readonly string[],
  env: Environment,
  version: string,
  io: Io = openProcessIo(),
): Promise<number> {
  const [name = 'help', ...rest] = args
  try {
    switch (name) {
      case 'version':
      case '--version':
      case '-version':
        io.out(`keyturn ${version}\n`)
        return 0
      case 'help':
      case '--help':
      case '-h':
        return help(rest[0], io)
      default: {
        const command = COMMANDS.find((candidate) => candidate.name === name)
        if (!command) throw invalid(`there is no command "${name}"; keyturn help lists them`)
        return await runCommand(command, rest, cliConfig(env), io)
      }
    }
  } catch (error) {
    const text = error instanceof AppError || !(error instanceof Error) ? messageOf(error) : `${error.message}`
    io.err(`keyturn: ${text}\n`)
    const hint = hintFor(error, name)
    if (hint !== undefined) io.err(`  ${hint}\n`)
    return exitCode(error)
  }
}

function help(name: string | undefined, io: Io): number {
  if (name === undefined) {
    io.out(overview(COMMANDS))
    return 0
  }
  const found = [...COMMANDS, ...OWN_HELP, ...PROCESS_HELP].find((candidate) => candidate.name === name)
  if (!found) throw invalid(`there is no command "${name}"; keyturn help lists them`)
  io.out(helpOf(found))
  return 0
}

async function runCommand(command: Command, args: readonly string[], config: CliConfig, io: Io): Promise<number> {
  const flags = readFlags(command.name, args)
  if (flags.help) {
    io.out(helpOf(command))
    return 0
  }
  const token = async () => tokenOf(flags, config)
  await using client = createClient({
    transport: await transportOf(flags, config),
    clock: systemClock,
    random: systemRandom,
    token,
  })
  await command.run({ client, words: flags.words, flags, config, io })
  return 0
}

async function transportOf(flags: CliFlags, config: CliConfig) {
  const caFile = flags.caCertFile ?? config.caCertFile
  const ca = caFile === undefined ? undefined : await readCa(caFile)
  return httpTransport({
    address: flags.address ?? config.address,
    insecure: flags.insecure || config.insecure,
    ...(ca !== undefined && { ca }),
  })
}

async function readCa(file: string): Promise<string> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (cause) {
    throw invalid(`cannot read the CA certificate ${file}: ${messageOf(cause)}`, { cause })
  }
  try {
    new X509Certificate(text)
  } catch (cause) {
    // TLS would take it for no CA at all, and say only that it trusts nobody.
    throw invalid(`${file} holds no certificate in PEM form`, { cause })
  }
  return text
}

function tokenOf(flags: CliFlags, config: CliConfig): Secret | undefined | Promise<Secret | undefined> {
  const given = flags.token ?? config.token
  return given === undefined ? readToken(config.tokenFile) : new Secret(given)
}
