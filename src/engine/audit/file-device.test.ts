import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openAuditFile } from './file-device.ts'

let directory: string
beforeAll(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'kt-audit-'))
})
afterAll(() => rmSync(directory, { recursive: true }))

test('lines are appended in their order, for their owner alone', async () => {
  const file = path.join(directory, 'log')
  writeFileSync(file, 'before\n', { mode: 0o600 })
  {
    await using device = await openAuditFile(file)
    await Promise.all(Array.from({ length: 100 }, (_, n) => device.write(`${n}\n`)))
    await device.write('last\n')
  }
  expect(readFileSync(file, 'utf8')).toBe(`before\n${Array.from({ length: 100 }, (_, n) => `${n}\n`).join('')}last\n`)
  await using _ = await openAuditFile(path.join(directory, 'fresh'))
  expect(statSync(path.join(directory, 'fresh')).mode & 0o777).toBe(0o600)
})

test('what is waiting when the device is closed is written', async () => {
  const file = path.join(directory, 'closing')
  const device = await openAuditFile(file)
  const written = device.write('one\n')
  await device[Symbol.asyncDispose]()
  await written
  expect(readFileSync(file, 'utf8')).toBe('one\n')
})

test('a device without room refuses', async () => {
  await using device = await openAuditFile('/dev/full')
  await expect(device.write('line\n')).rejects.toMatchObject({ kind: 'unavailable' })
  await expect(device.write('line\n')).rejects.toMatchObject({ kind: 'unavailable' })
})

test('a line that does not fit leaves no part of itself behind', () => {
  const file = path.join(directory, 'limited')
  const device = path.join(import.meta.dirname, 'file-device.ts')
  const program = `
    const { openAuditFile } = await import(${JSON.stringify(device)})
    const device = await openAuditFile(${JSON.stringify(file)})
    await device.write('x'.repeat(1999) + '\\n')
    await device.write('y'.repeat(3999) + '\\n').then(() => console.log('written'), (error) => console.log(error.kind))
    await device.write('short\\n')
    await device[Symbol.asyncDispose]()`
  // The largest file this process may write has 8 blocks of 512 octets.
  const shell = 'ulimit -f 8; exec "$0" --input-type=module -e "$1"'
  expect(execFileSync('sh', ['-c', shell, process.execPath, program], { encoding: 'utf8' })).toBe('unavailable\n')
  expect(readFileSync(file, 'utf8')).toBe(`${'x'.repeat(1999)}\nshort\n`)
})
