import { createClient } from '../client/client.ts'
import { inProcessTransport } from '../client/in-process.ts'
import type { DevConfig } from '../config.ts'
import { startController } from '../controller/controller.ts'
import { openStandalone } from '../controller/source/directory-source.ts'
import { systemClock } from '../lib/clock.ts'
import type { Logger } from '../lib/log.ts'
import { systemRandom } from '../lib/random.ts'
import { startServer } from './server.ts'

/**
 * `keyturn dev`: engine, API and controller in one process over a directory of manifests; Secrets become files. The controller goes through the
 * engine's door like everybody, only without a socket in between.
 */
export async function startDev(deps: {
  readonly config: DevConfig
  readonly log: Logger
  readonly version: string
  readonly signal: AbortSignal
}): Promise<AsyncDisposable & { readonly failed: Promise<unknown> }> {
  const { config, log, version, signal } = deps
  await using stack = new AsyncDisposableStack()
  const world = { clock: systemClock, random: systemRandom, log }
  // Before the store is made: a wrong directory should leave nothing behind.
  const { source, sink } = await openStandalone({
    manifests: config.manifestsDir,
    secrets: config.secretsDir,
    ...world,
  })
  const server = stack.use(await startServer({ config: config.server, log, version }))
  const { engine } = server
  const client = stack.use(
    createClient({
      transport: inProcessTransport({ engine, random: systemRandom }),
      clock: systemClock,
      random: systemRandom,
      token: async () => engine.controllerToken,
    }),
  )
  const { promise: failed, resolve: fail } = Promise.withResolvers<unknown>()
  void server.failed.then(fail)
  const running = startController({ source, sink, client, signal, ...world }).catch(fail)
  stack.defer(() => running)
  const resources = stack.move()
  return { failed, [Symbol.asyncDispose]: () => resources.disposeAsync() }
}
