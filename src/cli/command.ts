import type { Answer, Client } from '../client/client.ts'
import type { CliConfig } from '../config.ts'
import type { CliFlags } from './flags.ts'
import { fieldOf, formatAnswer } from './format.ts'
import type { Help } from './help.ts'
import type { Io } from './io.ts'

export interface CommandContext {
  readonly client: Client
  readonly words: readonly string[]
  readonly flags: CliFlags
  readonly config: CliConfig
  readonly io: Io
}

/** A command that asks a server something. */
export interface Command extends Help {
  run(context: CommandContext): Promise<void>
}

/** Shows an answer in the asked form; warnings go beside it. */
export function show(answer: Answer, { io, flags }: Pick<CommandContext, 'io' | 'flags'>): void {
  for (const warning of answer.warnings) io.err(`Warning: ${warning}\n`)
  // A field alone goes into files and variables as it is.
  if (flags.field !== undefined) io.out(fieldOf(answer, flags.field) + (io.isTerminal ? '\n' : ''))
  else io.out(formatAnswer(answer, flags.format))
}

/** Says so to a person; a program sees it from the exit code. */
export function done(text: string, { io, flags }: Pick<CommandContext, 'io' | 'flags'>): void {
  if (flags.format === 'table' && flags.field === undefined) io.out(`${text}\n`)
}
