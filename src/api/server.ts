import type { EngineDoor } from '../engine/request.ts'
import type { Clock } from '../lib/clock.ts'
import type { Logger } from '../lib/log.ts'
import type { Random } from '../lib/random.ts'
import { runWorker } from '../lib/worker.ts'
import { createApp } from './app.ts'
import { BodyBudget } from './body-budget.ts'
import { followPair, loadPair } from './certificate.ts'
import { TrustedNetworks } from './client-address.ts'
import type { Limits } from './limits.ts'
import { type Listener, type Listening, listen, requireSafe } from './listener.ts'
import { Requests } from './requests.ts'

/**
 * The HTTP side of the engine's door: listeners over TCP, TLS and unix sockets, and in front of the engine one catch-all (`app.ts`).
 *
 * Holds: plain HTTP is on loopback unless asked for by name; a client that goes away or sends slowly costs bounded memory and time and ends
 * no work half-way; stopping finishes what was begun. Leaves to the engine: who may do what, routing, audit.
 */
export interface ApiDeps {
  readonly engine: EngineDoor
  readonly listeners: readonly Listener[]
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** Networks of proxies whose `X-Forwarded-For` (and PROXY header, where on) is believed. */
  readonly trustedProxies: readonly string[]
  readonly proxyProtocol: boolean
  readonly limits: Limits
}

export interface ApiServer extends AsyncDisposable {
  /** Where it listens: `https://127.0.0.1:8200`, `unix:/run/keyturn.sock`. In the order of the listeners. */
  readonly addresses: readonly string[]
}

/** Listens everywhere or nowhere. Throws `invalid` for a listener that is unsafe, taken, or whose certificate cannot be used. */
export async function startApi(deps: ApiDeps): Promise<ApiServer> {
  const { clock, log, limits } = deps
  for (const listener of deps.listeners) requireSafe(listener)
  const trusted = new TrustedNetworks(deps.trustedProxies)
  const requests = new Requests(clock, limits.answerMs)
  const handler = await createApp({ ...deps, trusted, requests })
  const bodies = new BodyBudget(limits.allBodiesBytes)
  const stopped = new AbortController()
  const workers: Promise<void>[] = []
  const listenings: Listening[] = []

  const dispose = async () => {
    if (stopped.signal.aborted) return
    for (const listening of listenings) listening.stopAccepting()
    await requests.drain(limits.shutdownMs)
    stopped.abort()
    await Promise.all([...listenings.map((listening) => listening[Symbol.asyncDispose]()), ...workers])
  }

  try {
    for (const listener of deps.listeners) {
      const source = listener.kind === 'tcp' ? listener.tls : undefined
      const pair = source && (await loadPair(source, deps))
      const proxied = deps.proxyProtocol ? trusted : undefined
      const listening = await listen(listener, pair, { handler, limits, clock, proxied, bodies })
      listenings.push(listening)
      const { server } = listening
      if (source && pair && 'setSecureContext' in server)
        workers.push(
          followPair(source, pair, (fresh) => server.setSecureContext(fresh), { ...deps, signal: stopped.signal }),
        )
      log.info({ address: listening.address }, 'listening')
    }
  } catch (error) {
    await dispose()
    throw error
  }
  const late = {
    name: 'api-deadline',
    tick: async () => {
      requests.abortLate()
      return 1_000
    },
  }
  workers.push(
    runWorker(late, { clock, signal: stopped.signal, onError: (error) => log.error({ error }, 'deadline check') }),
  )
  return { addresses: listenings.map((listening) => listening.address), [Symbol.asyncDispose]: dispose }
}
