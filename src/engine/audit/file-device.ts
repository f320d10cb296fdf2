import { fstatSync, ftruncateSync, statSync, writeSync } from 'node:fs'
import { constants, type FileHandle, open } from 'node:fs/promises'
import { unavailable } from '../../lib/errors.ts'
import type { AuditDevice } from './audit.ts'

/**
 * Appends audit lines to a file or to standard output (`-`). A file is its owner's and at most its group's to read; one that was moved away
 * (to be rotated) is made anew at its path. The lines of one turn of the event loop go out in one write. A write that fails is cut off again,
 * so that a full disk leaves no half line behind.
 */
export async function openAuditFile(path: string): Promise<AuditDevice> {
  const { append, close } = path === '-' ? standardOutput() : await appender(path)
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
      await close()
    },
  }
}

interface Appender {
  readonly append: (octets: Buffer) => Promise<void>
  readonly close: () => Promise<void>
}

function standardOutput(): Appender {
  // Whoever reads it may go away. That refuses requests, as each write is told; unheard it would end the process.
  process.stdout.on('error', () => undefined)
  return {
    append: (octets) =>
      new Promise((resolve, reject) => process.stdout.write(octets, (error) => (error ? reject(error) : resolve()))),
    close: async () => undefined,
  }
}

async function appender(path: string): Promise<Appender> {
  let file = await openPrivate(path)
  const close = () => file.close()
  let place = await file.stat()
  // What may block for long, a pipe whose reader sleeps, is written on another thread.
  if (!place.isFile()) return { append: (octets) => file.appendFile(octets), close }
  return {
    async append(octets) {
      const there = statSync(path, { throwIfNoEntry: false })
      if (there?.ino !== place.ino || there.dev !== place.dev) {
        const fresh = await openPrivate(path)
        await file.close()
        file = fresh
        place = await file.stat()
      }
      // Into the page cache of a file it takes a few microseconds, a twentieth of the way to another thread and back.
      appendToFile(file.fd, octets)
    },
    close,
  }
}

async function openPrivate(path: string): Promise<FileHandle> {
  const file = await open(path, constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY, 0o600)
  const status = await file.stat()
  if (status.isFile() && (status.mode & OTHERS) !== 0) await file.chmod(status.mode & ~OTHERS)
  return file
}

const OTHERS = 0o007

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
