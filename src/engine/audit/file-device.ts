import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { unavailable } from '../../lib/errors.ts'
import type { AuditDevice } from './audit.ts'

/**
 * Appends audit lines to a file (made with mode 0600) or to standard output (`-`). Lines that wait together go out in one write. A short
 * write is finished or cut off again, so that a full disk leaves no half line behind.
 */
export async function openAuditFile(path: string): Promise<AuditDevice> {
  const file =
    path === '-' ? undefined : await open(path, constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY, 0o600)
  let waiting: { line: string; resolve: () => void; reject: (error: unknown) => void }[] = []
  let writing: Promise<void> | undefined

  async function drain(): Promise<void> {
    while (waiting.length > 0) {
      const group = waiting
      waiting = []
      try {
        await append(file, Buffer.from(group.map((entry) => entry.line).join('')))
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
      writing ??= Promise.resolve().then(drain)
      return done
    },
    async [Symbol.asyncDispose]() {
      await writing
      await file?.close()
    },
  }
}

async function append(file: FileHandle | undefined, octets: Buffer): Promise<void> {
  if (!file) {
    await new Promise<void>((resolve, reject) =>
      process.stdout.write(octets, (error) => (error ? reject(error) : resolve())),
    )
    return
  }
  const { size } = await file.stat()
  try {
    for (let at = 0; at < octets.length; ) at += (await file.write(octets, at)).bytesWritten
  } catch (error) {
    // Cannot fail for want of space: it only takes octets away. A pipe or device cannot be cut, and needs not.
    await file.truncate(size).catch(() => undefined)
    throw error
  }
}
