import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client as Ldap } from 'ldapts'
import { type Dispatcher, Client as Http } from 'undici'
import type { Keyturn } from '../test/support/keyturn.ts'

/** Bounded load: so many lanes, each doing one thing after the other, for so long or so often. */
export interface Load {
  readonly perSecond: number
  readonly done: number
  /** Milliseconds that 99 of 100 did not exceed. */
  readonly p99Ms: number
}

/** Does `once` in lanes for a time, after a shorter one that does not count. */
export async function loadFor(
  lanes: number,
  durationMs: number,
  once: (lane: number, n: number) => Promise<unknown>,
): Promise<Load> {
  await lanesUntil(lanes, durationMs / 3, once)
  return lanesUntil(lanes, durationMs, once)
}

async function lanesUntil(
  lanes: number,
  durationMs: number,
  once: (lane: number, n: number) => Promise<unknown>,
): Promise<Load> {
  const startMs = performance.now()
  const times: number[] = []
  let next = 0
  const run = async (lane: number) => {
    for (let now = performance.now(); now - startMs < durationMs; ) {
      await once(lane, next++)
      const end = performance.now()
      times.push(end - now)
      now = end
    }
  }
  await Promise.all(Array.from({ length: lanes }, (_, lane) => run(lane)))
  return loadOf(times, performance.now() - startMs)
}

/** Does `once` for each of these, in lanes. */
export async function loadOver<T>(
  lanes: number,
  all: readonly T[],
  once: (one: T, lane: number) => Promise<unknown>,
): Promise<Load> {
  const startMs = performance.now()
  const times: number[] = []
  const left = all.values()
  const run = async (lane: number) => {
    // One iterator for all lanes.
    for (const one of left) {
      const begunMs = performance.now()
      await once(one, lane)
      times.push(performance.now() - begunMs)
    }
  }
  await Promise.all(Array.from({ length: lanes }, (_, lane) => run(lane)))
  return loadOf(times, performance.now() - startMs)
}

function loadOf(times: readonly number[], tookMs: number): Load {
  const sorted = [...times].sort((a, b) => a - b)
  return {
    perSecond: (times.length * 1000) / tookMs,
    done: times.length,
    p99Ms: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
  }
}

/** Keep-alive connections to a server, one a lane; `call` throws for a status that is no success. */
export interface Connections extends AsyncDisposable {
  call(lane: number, method: string, path: string, body?: unknown): Promise<unknown>
}

export async function connect(keyturn: Keyturn, lanes: number, token: string | undefined): Promise<Connections> {
  const ca = await readFile(keyturn.caFile, 'utf8')
  const clients = Array.from({ length: lanes }, () => new Http(keyturn.url, { connect: { ca }, pipelining: 1 }))
  const headers = token === undefined ? {} : { 'x-vault-token': token }
  return {
    async call(lane, method, path, body) {
      const answer = await clients[lane]?.request({
        path: `/v1/${path}`,
        method: method as Dispatcher.HttpMethod,
        headers,
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
      const text = (await answer?.body.text()) ?? ''
      if (!answer || answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer?.statusCode} ${text}`)
      return text === '' ? undefined : JSON.parse(text)
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(clients.map((client) => client.close()))
    },
  }
}

/** Connections of the directory's own: one bound client a lane. */
export async function bindAll(url: string, lanes: number, dn: string, password: string): Promise<Ldap[]> {
  return Promise.all(
    Array.from({ length: lanes }, async () => {
      const client = new Ldap({ url, timeout: 20_000, connectTimeout: 5_000 })
      await client.bind(dn, password)
      return client
    }),
  )
}

export async function unbindAll(clients: readonly Ldap[]): Promise<void> {
  await Promise.all(clients.map((client) => client.unbind()))
}

/** The one of this lane. */
export function ofLane<T>(clients: readonly T[], lane: number): T {
  const client = clients[lane]
  if (client === undefined) throw new Error(`there is no lane ${lane}`)
  return client
}

export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
}

/** The value that this part of all does not exceed. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)] ?? Number.NaN
}

/** CPU time a process has used so far. */
export async function cpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  // utime and stime, in the 100 ticks a second of every Linux that runs Node.
  return (Number(fields[11]) + Number(fields[12])) * 10
}

/** Resident memory of a process, in MB. */
export async function rssMb(pid: number): Promise<number> {
  const [, kb = '0'] = /^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kb) / 1024
}

/** Waits for something that must come. */
export async function until(
  what: string,
  limitMs: number,
  isThere: () => Promise<boolean>,
  everyMs = 50,
): Promise<void> {
  const end = performance.now() + limitMs
  while (!(await isThere())) {
    if (performance.now() > end) throw new Error(`${what} did not come within ${limitMs / 1000} s`)
    await sleep(everyMs)
  }
}
