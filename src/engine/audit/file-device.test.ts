import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openAuditFile } from './file-device.ts'

const DEVICE = path.join(import.meta.dirname, 'file-device.ts')

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

test('a file that everybody could read is so no longer; what its group may stays', async () => {
  for (const [before, after] of [
    [0o644, 0o640],
    [0o666, 0o660],
    [0o600, 0o600],
  ] as const) {
    const file = path.join(directory, `mode-${before}`)
    writeFileSync(file, '')
    chmodSync(file, before)
    await using _ = await openAuditFile(file)
    expect(statSync(file).mode & 0o777).toBe(after)
  }
})

test('a file that was moved away is made anew, and no line is lost', async () => {
  const file = path.join(directory, 'rotated')
  await using device = await openAuditFile(file)
  await device.write('one\n')
  renameSync(file, `${file}.1`)
  await device.write('two\n')
  await device.write('three\n')
  expect(readFileSync(`${file}.1`, 'utf8')).toBe('one\n')
  expect(readFileSync(file, 'utf8')).toBe('two\nthree\n')
  expect(statSync(file).mode & 0o777).toBe(0o600)
  renameSync(file, `${file}.2`)
  writeFileSync(file, 'new\n')
  await device.write('four\n')
  expect(readFileSync(file, 'utf8')).toBe('new\nfour\n')
})

test('standard output that nobody reads any more refuses, and ends nothing', async () => {
  const program = `
    const { openAuditFile } = await import(${JSON.stringify(DEVICE)})
    const device = await openAuditFile('-')
    for (let refused = 0; refused < 3; ) {
      const kind = await device.write('x'.repeat(10_000) + '\\n').then(() => undefined, (error) => error.kind)
      if (kind) refused = process.stderr.write(kind + ' ') && refused + 1
    }`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'pipe'] })
  child.stdout.once('data', () => child.stdout.destroy())
  const code = new Promise((resolve) => child.once('close', resolve))
  expect(await text(child.stderr)).toBe('unavailable unavailable unavailable ')
  expect(await code).toBe(0)
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
  const program = `
    const { openAuditFile } = await import(${JSON.stringify(DEVICE)})
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
