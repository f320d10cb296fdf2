import { fstatSync, ftruncateSync, writeSync } from 'node:fs'
import { constants, open } from 'node:fs/promises'
import { unavailable } from '../../lib/errors.ts'
import type { AuditDevice } from './audit.ts'

/**
 * Appends audit lines to a file (made with mode 0600) or to standard output (`-`). The lines of one turn of the event loop go out in one
 * write. A write that fails is cut off again, so that a full disk leaves no half line behind.
 */
export async function openAuditFile(path: string): Promise<AuditDevice> {
  const file =
    path === '-' ? undefined : await open(path, constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY, 0o600)
  let append = appendToStdout
  if (file) {
    // Into the page cache of a file it takes a few microseconds, a twentieth of the way to another thread and back. What may block for
    // long, a pipe whose reader sleeps, goes that way.
    const isRegular = (await file.stat()).isFile()
    append = isRegular ? async (octets) => appendToFile(file.fd, octets) : (octets) => file.appendFile(octets)
  }
  let waiting: { line: string; resolve: () => void; reject: (error: unknown) => void }[] = []
  let writing: Promise<void> | undefined

  async function drain(): Promise<void> {
    while (waiting.length > 0) {
      const group = waiting
      waiting = []
      try {
        await append(Buffer.from(group.map((entry) => entry.line).join('')))
        for (const entry of group) entry.resolve()
      } catch (error) {
        const refused = unavailable('the audit record cannot be written, so the request is refused', { cause: error })
        for (const entry of group) entry.reject(refused)
      }
    }
    writing = undefined
  }

  return {
    write(line) {
      const done = new Promise<void>((resolve, reject) => waiting.push({ line, resolve, reject }))
      writing ??= new Promise((resolve) => setImmediate(() => resolve(drain())))
      return done
    },
    async [Symbol.asyncDispose]() {
      await writing
      await file?.close()
    },
  }
}

function appendToStdout(octets: Buffer): Promise<void> {
  return new Promise((resolve, reject) => process.stdout.write(octets, (error) => (error ? reject(error) : resolve())))
}

function appendToFile(fd: number, octets: Buffer): void {
  let written = 0
  try {
    while (written < octets.length) written += writeSync(fd, octets, written)
  } catch (error) {
    if (written > 0) cutOff(fd, written)
    throw error
  }
}

/** Cannot fail for want of space: it only takes octets away. */
function cutOff(fd: number, octets: number): void {
  try {
    ftruncateSync(fd, fstatSync(fd).size - octets)
  } catch {
    // The error that brought us here is the one to tell.
  }
}
