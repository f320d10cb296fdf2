import { invalid, messageOf } from '../lib/errors.ts'

/** What a command reads from and writes to. */
export interface Io {
  readonly isTerminal: boolean
  out(text: string): void
  err(text: string): void
  /** All of standard input. */
  readAll(): Promise<string>
  /** Asks a person, without showing what is typed. Throws `invalid`: `interrupted`, or `no-terminal` where there is nobody to ask. */
  askSecret(prompt: string): Promise<string>
}

const ENTER = new Set(['\r', '\n', '\u0004'])
const BACKSPACE = new Set(['\u007f', '\b'])
const ERASE_LINE = '\u0015'
const INTERRUPT = '\u0003'

/** Standard input and output of this process. Who closes the pipe has read enough: the process ends. A full disk is told. */
export function openProcessIo(): Io {
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error) => {
      if ('code' in error && error.code === 'EPIPE') process.exit(0)
      if (stream === process.stdout) process.stderr.write(`keyturn: cannot write the answer: ${messageOf(error)}\n`)
      process.exit(1)
    })
  return processIo
}

const processIo: Io = {
  isTerminal: process.stdout.isTTY === true,
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  async readAll() {
    const chunks: Buffer[] = []
    for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk))
    return Buffer.concat(chunks).toString()
  },
  async askSecret(prompt) {
    const { stdin, stderr } = process
    if (!stdin.isTTY) throw invalid('there is no terminal to ask on', { reason: 'no-terminal' })
    // Before the prompt: fast fingers would be shown.
    stdin.setRawMode(true)
    stderr.write(prompt)
    stdin.setEncoding('utf8')
    let typed: string[] = []
    try {
      for await (const piece of stdin.iterator({ destroyOnReturn: false })) {
        for (const character of String(piece)) {
          if (ENTER.has(character)) return typed.join('')
          if (character === INTERRUPT) throw invalid('interrupted', { reason: 'interrupted' })
          if (character === ERASE_LINE) typed = []
          else if (BACKSPACE.has(character)) typed.pop()
          else typed.push(character)
        }
      }
      return typed.join('')
    } finally {
      stdin.setRawMode(false)
      stdin.pause()
      stderr.write('\n')
    }
  },
}
