import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startKeyturn } from '../support/keyturn.ts'

// How long-lived processes begin and end: what a mistake says, and the exit code that a supervisor sees.

const main = path.resolve(import.meta.dirname, '../../src/main.ts')
let dir: string
beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'kt-processes-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

function launch(args: readonly string[]): { child: ChildProcess; output: () => string; ended: Promise<number | null> } {
  const command = ['--pdeathsig', 'KILL', '--', process.execPath, main, ...args]
  const child = spawn('setpriv', command, { env: { PATH: process.env['PATH'], HOME: dir } })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => (output += data))
  return { child, output: () => output, ended: once(child, 'close').then(([code]) => code) }
}

test.each([
  ['dev', ['--manifests', 'none', '--secrets', 'secrets', '--data', 'data'], /manifests cannot be read.*none/],
  ['dev', ['--secrets', 'secrets'], /--manifests DIR is required/],
  ['controller', ['--manifests', 'none', '--secrets', 'secrets'], /manifests cannot be read.*none/],
  ['controller', [], /no kubeconfig .*\.kube\/config.*--kubeconfig FILE/],
  ['controller', ['--kubeconfig', '/nowhere'], /no kubeconfig \/nowhere/],
  ['server', ['--listen', 'here'], /--listen must be HOST:PORT/],
  ['server', ['--nope'], /--nope/],
  ['restore', ['none.db', '--data', 'data'], /data\/seal-key does not exist/],
  ['restore', ['none.db'], /--data DIR is required/],
])('%s %j is a mistake: exit code 2, one sentence, nothing made', async (command, args, message) => {
  const places = ['none', 'none.db', 'secrets', 'data']
  const process_ = launch([command, ...args.map((arg) => (places.includes(arg) ? path.join(dir, arg) : arg))])
  expect(await process_.ended, process_.output()).toBe(2)
  expect(process_.output()).toMatch(message)
  expect(process_.output()).not.toMatch(/^ +at /m)
  for (const place of places) expect(existsSync(path.join(dir, place)), place).toBe(false)
})

test('a store in use is no mistake: exit code 5', async () => {
  const keyturn = await startKeyturn()
  try {
    const second = launch(['server', '--data', keyturn.dataDir, '--listen', '127.0.0.1:0'])
    expect(await second.ended).toBe(5)
    expect(second.output()).toContain('is in use by another process')
  } finally {
    await keyturn.stop()
  }
})

test('a controller that cannot go on ends with an exit code that says so', async () => {
  const [work, manifests] = [path.join(dir, 'work'), path.join(dir, 'manifests')]
  for (const folder of [work, manifests]) await mkdir(folder)
  const [socket, token] = [path.join(work, 'keyturn.sock'), path.join(work, 'controller-token')]
  await writeFile(token, 'none yet')
  const where = ['--manifests', manifests, '--secrets', path.join(dir, 'out')]
  const controller = launch(['controller', ...where, '--socket', socket, '--controller-token', token])
  await expect.poll(controller.output, { timeout: 20_000 }).toContain('cannot begin yet')
  await rm(manifests, { recursive: true })
  const keyturn = await startKeyturn({ work })
  try {
    expect(await controller.ended, controller.output()).toBe(1)
    expect(controller.output()).toMatch(/ENOENT.*cannot go on/)
    expect(controller.output()).toContain('"stopped"')
  } finally {
    await keyturn.stop()
  }
})

test.each(['server', 'controller', 'dev', 'restore'])('%s --help shows its help', async (command) => {
  for (const flag of ['--help', '-h']) {
    const process_ = launch([command, flag])
    expect(await process_.ended).toBe(0)
    expect(process_.output()).toContain(`Usage: keyturn ${command} `)
  }
})
