import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, watch } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { startKeyturn } from '../support/keyturn.ts'

// The first start makes a seal key, a store, certificates and tokens: killed at any of these steps, it is as if it had not begun.

const MAIN = path.resolve(import.meta.dirname, '../../src/main.ts')
const STEPS = [1, 2, 3, 4, 6, 9, 12, 16]

/** Starts a server over an empty directory and kills it at the given change to it; returns what it leaves there. */
async function killedAt(change: number, dataDir: string): Promise<string[]> {
  const stop = new AbortController()
  const changes = watch(dataDir, { recursive: true, signal: stop.signal })
  const args = ['server', '--data', dataDir, '--listen', '127.0.0.1:0', '--socket', path.join(dataDir, 'keyturn.sock')]
  const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', process.execPath, MAIN, ...args], { stdio: 'ignore' })
  const ended = once(child, 'exit')
  let seen = 0
  for await (const _ of changes) if (++seen === change) break
  child.kill('SIGKILL')
  stop.abort()
  expect(await ended).toEqual([null, 'SIGKILL'])
  return (await readdir(dataDir, { recursive: true })).sort()
}

test('killed at any step, the next start makes what is missing and goes on with what is there', {
  timeout: 120_000,
}, async () => {
  const left = new Set<string>()
  for (const change of STEPS) {
    const work = await mkdtemp(path.join(tmpdir(), 'kt-first-'))
    left.add((await killedAt(change, work)).map((name) => name.replace(/[0-9a-f-]{36}/, 'UUID')).join(' '))
    const keyturn = await startKeyturn({ work })
    try {
      const { status, body } = await keyturn.call('GET', 'auth/token/lookup-self')
      expect([status, body.data?.policies]).toEqual([200, ['root']])
      expect((await keyturn.call('GET', 'sys/health', undefined, { token: null })).status).toBe(200)
    } finally {
      await keyturn.stop()
    }
  }
  // It was killed at different steps indeed.
  expect(left.size).toBeGreaterThan(1)
})
