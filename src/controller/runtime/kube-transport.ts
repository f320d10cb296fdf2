import { Agent, type Dispatcher } from 'undici'
import type { Clock } from '../../lib/clock.ts'
import { unavailable } from '../../lib/errors.ts'
import type { Secret } from '../../lib/secret.ts'
import type { KubeCredentials, KubeEndpoint } from './endpoint.ts'
import { KubeError } from './kube-error.ts'

/** `calls` share a few connections; each watch holds one of its own; `urgent` (Lease renewals) never waits behind the others. */
export type Lane = 'calls' | 'watch' | 'urgent'

export interface KubeRequest {
  readonly lane: Lane
  readonly method: Dispatcher.HttpMethod
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  readonly signal?: AbortSignal
}

interface Connected {
  readonly fingerprint: string
  readonly authorization: Secret | undefined
  readonly agents: Readonly<Record<Lane, Dispatcher>>
}

// The files of a pod are read again this often, so that a new token or CA is used before the old one ends.
const RELOAD_MS = 10_000

/** Connections to one API server: HTTP/1.1, kept alive, renewed when the CA or the client certificate changes. */
export class KubeTransport {
  readonly #endpoint: KubeEndpoint
  readonly #clock: Clock
  readonly #fence: Dispatcher.DispatcherComposeInterceptor
  #connected: Connected | undefined
  #loadedAtMs = 0
  #loading: Promise<Connected> | undefined

  constructor(
    endpoint: KubeEndpoint,
    { clock, mayWrite }: { readonly clock: Clock; readonly mayWrite: () => boolean },
  ) {
    this.#endpoint = endpoint
    this.#clock = clock
    this.#fence = fenceOf(mayWrite)
  }

  /** One request; on 401 once more if other credentials are to be had by then. The body of the answer is the caller's to consume. */
  async send(request: KubeRequest): Promise<Dispatcher.ResponseData> {
    const first = await this.#connect(false)
    const answer = await this.#dispatch(first, request)
    if (answer.statusCode !== 401) return answer
    const second = await this.#connect(true)
    const same = second.authorization && first.authorization?.equals(second.authorization)
    if (same && second.fingerprint === first.fingerprint) return answer
    await answer.body.dump()
    return this.#dispatch(second, request)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const agents = Object.values(this.#connected?.agents ?? {})
    this.#connected = undefined
    await Promise.all(agents.map((agent) => agent.destroy()))
  }

  async #dispatch(connected: Connected, { lane, method, path, headers, body, signal }: KubeRequest) {
    const { authorization, agents } = connected
    return agents[lane].request({
      origin: this.#endpoint.server,
      method,
      path,
      headers: { ...headers, ...(authorization && { authorization: authorization.reveal() }) },
      ...(body !== undefined && { body }),
      ...(signal && { signal }),
    })
  }

  #connect(force: boolean): Promise<Connected> {
    const fresh = this.#clock.monotonicMs() - this.#loadedAtMs < RELOAD_MS
    if (this.#connected && fresh && !force) return Promise.resolve(this.#connected)
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined
    })
    return this.#loading
  }

  async #load(): Promise<Connected> {
    let credentials: KubeCredentials
    try {
      credentials = await this.#endpoint.load()
    } catch (error) {
      // kubelet replaces files in steps: what worked a moment ago may still do.
      if (this.#connected) return this.#connected
      throw new KubeError('credentials for the API server', { status: 0, text: 'cannot be read' }, error)
    }
    this.#loadedAtMs = this.#clock.monotonicMs()
    const { ca, cert, key, servername, insecure } = credentials
    const fingerprint = JSON.stringify([ca, cert, key?.reveal(), servername, insecure])
    const before = this.#connected
    if (before?.fingerprint === fingerprint) {
      this.#connected = { ...before, authorization: credentials.authorization }
      return this.#connected
    }
    this.#connected = {
      fingerprint,
      authorization: credentials.authorization,
      agents: agentsFor(credentials, this.#fence),
    }
    // Ends each connection after the requests on it; a watch goes on to its own end.
    for (const agent of Object.values(before?.agents ?? {})) void agent.close().catch(() => undefined)
    return this.#connected
  }
}

/**
 * Lets nothing but reads go out while `mayWrite` says no. It is asked when a connection is there and the next thing is to send: a
 * process that was frozen wakes up with requests that were allowed long ago and wait in line.
 */
function fenceOf(mayWrite: () => boolean): Dispatcher.DispatcherComposeInterceptor {
  return (dispatch) => (options, handler) => {
    if (options.method === 'GET') return dispatch(options, handler)
    return dispatch(options, {
      onRequestStart(controller, context) {
        // Whatever is thrown here ends the request before its first byte.
        if (!mayWrite()) throw unavailable('this process is not the leader any more', { reason: 'not-leading' })
        handler.onRequestStart?.(controller, context)
      },
      onRequestUpgrade: (...args) => handler.onRequestUpgrade?.(...args),
      onResponseStart: (...args) => handler.onResponseStart?.(...args),
      onResponseData: (...args) => handler.onResponseData?.(...args),
      onResponseEnd: (...args) => handler.onResponseEnd?.(...args),
      onResponseError: (...args) => handler.onResponseError?.(...args),
    })
  }
}

function agentsFor(
  { ca, cert, key, servername, insecure }: KubeCredentials,
  fence: Dispatcher.DispatcherComposeInterceptor,
): Record<Lane, Dispatcher> {
  const connect = {
    keepAlive: true,
    keepAliveInitialDelay: 20_000,
    timeout: 10_000,
    ...(ca && { ca }),
    ...(cert && { cert }),
    ...(key && { key: key.reveal() }),
    ...(servername && { servername }),
    ...(insecure && { rejectUnauthorized: false }),
  }
  // Deadlines come with each request; undici's own would end a quiet watch.
  const common = { allowH2: false, pipelining: 1, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 30_000, connect }
  return {
    calls: new Agent({ ...common, connections: 8 }).compose(fence),
    watch: new Agent(common),
    urgent: new Agent({ ...common, connections: 1 }),
  }
}
