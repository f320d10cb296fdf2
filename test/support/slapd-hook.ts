import { rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import net from 'node:net'
import { join } from 'node:path'
import { type Slapd, startSlapd } from './slapd.ts'

/**
 * Lets a test look at, hold, refuse or fake single operations inside a real slapd: its overlay "sock" (slapd-sock(5)) sends every operation to a
 * unix socket first and does what the answer says. Start the hook, then `startSlapd({ HOOK: socket })`. slapd has 8 threads here, so at most 8
 * operations can be held at once; its own inner searches come by too.
 */
export interface HookOperation {
  readonly type: 'ADD' | 'BIND' | 'COMPARE' | 'DELETE' | 'MODIFY' | 'MODRDN' | 'SEARCH' | 'UNBIND' | 'EXTENDED'
  /** The base of a search. */
  readonly dn: string
  readonly filter: string
  readonly password: string
  readonly binddn: string
  readonly connid: string
  readonly changes: { readonly operation: string; readonly attribute: string; readonly values: Buffer[] }[]
}
export type HookAnswer = 'CONTINUE' | { readonly code: number; readonly info?: string }
export type HookHandler = (operation: HookOperation) => HookAnswer | Promise<HookAnswer>

export interface Hook extends AsyncDisposable {
  readonly seen: HookOperation[]
  handler: HookHandler
}

export async function startHook(socketPath: string, handler: HookHandler): Promise<Hook> {
  rmSync(socketPath, { force: true })
  const sockets = new Set<net.Socket>()
  const hook: Hook = {
    seen: [],
    handler,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  }
  const server = net.createServer((socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined)
    let text = ''
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      if (text.endsWith('\n\n')) void answer(hook, socket, text)
    })
  })
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(socketPath, resolve))
  return hook
}

/** A slapd with a hook that lets everything go on until a test says otherwise. */
export interface HookedSlapd extends AsyncDisposable {
  readonly slapd: Slapd
  readonly hook: Hook
}

export async function startHookedSlapd(): Promise<HookedSlapd> {
  const directory = await mkdtemp('/tmp/kt-hook-')
  const socket = join(directory, 'hook')
  const hook = await startHook(socket, () => 'CONTINUE')
  const slapd = await startSlapd({ HOOK: socket })
  return {
    slapd,
    hook,
    async [Symbol.asyncDispose]() {
      await slapd.stop()
      await hook[Symbol.asyncDispose]()
      await rm(directory, { recursive: true, force: true })
    },
  }
}

async function answer(hook: Hook, socket: net.Socket, text: string): Promise<void> {
  const operation = parse(text)
  hook.seen.push(operation)
  if (operation.type === 'UNBIND') {
    socket.end()
    return
  }
  try {
    const told = await hook.handler(operation)
    socket.end(told === 'CONTINUE' ? 'CONTINUE\n' : `RESULT\ncode: ${told.code}\nmatched: \ninfo: ${told.info ?? ''}\n`)
  } catch (error) {
    socket.end(`RESULT\ncode: 80\ninfo: hook: ${String(error)}\n`)
  }
}

const OPERATIONS = new Set(['add', 'delete', 'replace', 'increment'])

function parse(text: string): HookOperation {
  const [type = '', ...lines] = text
    .replace(/\n /g, '')
    .split('\n')
    .filter((line) => line !== '')
  const found = { type: type as HookOperation['type'], dn: '', filter: '', password: '', binddn: '', connid: '' }
  const changes: { operation: string; attribute: string; values: Buffer[] }[] = []
  let passwordOctets = 0
  for (const line of lines) {
    const [, name = '', base64, rest = ''] = /^([^:]+):(:?) ?(.*)$/s.exec(line) ?? []
    const value = base64 ? Buffer.from(rest, 'base64') : Buffer.from(rest)
    if (name === 'binddn' || name === 'connid') found[name] = value.toString()
    else if (name === 'dn' || name === 'base') found.dn = value.toString()
    else if (name === 'filter') found.filter = rest
    else if (name === 'credlen') passwordOctets = Number(rest)
    else if (name === 'cred') {
      const cred = Buffer.from(text.slice(text.indexOf('\ncred: ') + 7))
      found.password = cred.subarray(0, passwordOctets).toString()
    } else if (type === 'MODIFY' && OPERATIONS.has(name)) {
      changes.push({ operation: name, attribute: rest, values: [] })
    } else if (type === 'MODIFY') changes.at(-1)?.values.push(value)
    else if (type === 'ADD') {
      const known = changes.find((change) => change.attribute.toLowerCase() === name.toLowerCase())
      if (known) known.values.push(value)
      else changes.push({ operation: 'add', attribute: name, values: [value] })
    }
  }
  return { ...found, changes }
}
