import { randomUUID } from 'node:crypto'
import { chmod, mkdir, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { startApi } from '../api/server.ts'
import type { ServerConfig } from '../config.ts'
import { openAuditFile } from '../engine/audit/file-device.ts'
import { type Engine, startEngine } from '../engine/engine.ts'
import { openFileSeal } from '../engine/seal/file-seal.ts'
import { openStore } from '../engine/storage/open.ts'
import { systemClock } from '../lib/clock.ts'
import type { Logger } from '../lib/log.ts'
import { systemRandom } from '../lib/random.ts'
import type { Secret } from '../lib/secret.ts'

/** `keyturn server`: store, engine and API, opened in this order and closed in the reverse one. */
export interface ServerProcess extends AsyncDisposable {
  readonly engine: Engine
  readonly addresses: readonly string[]
}

export async function startServer(deps: {
  readonly config: ServerConfig
  readonly log: Logger
  readonly version: string
}): Promise<ServerProcess> {
  const { config, log, version } = deps
  await using stack = new AsyncDisposableStack()
  await mkdir(config.dataDir, { recursive: true, mode: 0o700 })
  const seal = await openFileSeal(config.sealKeyFile, { createIfMissing: true, random: systemRandom })
  const opened = stack.use(await openStore({ dataDir: config.dataDir, seal, clock: systemClock, random: systemRandom }))
  const audit = config.auditLog === 'off' ? undefined : stack.use(await openAuditFile(config.auditLog))
  const engine = stack.use(
    await startEngine({
      store: opened.store,
      barrier: opened.barrier,
      clock: systemClock,
      random: systemRandom,
      log,
      audit,
      version,
      snapshotDir: path.join(path.resolve(config.dataDir), 'snapshots'),
      keepRootToken: (token) => keepSecret(path.join(config.dataDir, 'root-token'), token),
    }),
  )
  if (config.controllerTokenFile !== undefined) await keepSecret(config.controllerTokenFile, engine.controllerToken)
  const api = stack.use(
    await startApi({
      engine,
      listeners: [
        ...config.listen.map((at) => ({
          kind: 'tcp' as const,
          ...at,
          tls: config.tls ?? (config.plainHttp ? undefined : ('own-ca' as const)),
        })),
        ...(config.socket !== undefined ? [{ kind: 'unix' as const, path: config.socket, mode: 0o600 }] : []),
      ],
      dataDir: config.dataDir,
      allowPlainHttp: config.plainHttp,
      trustedProxies: config.trustedProxies,
      proxyProtocol: config.proxyProtocol,
      clock: systemClock,
      random: systemRandom,
      log,
    }),
  )
  log.info({ addresses: api.addresses, version, dataDir: config.dataDir }, 'keyturn server is ready')
  const resources = stack.move()
  return { engine, addresses: api.addresses, [Symbol.asyncDispose]: () => resources.disposeAsync() }
}

/** Writes a token for its owner alone: 0600, whole or not at all. */
export async function keepSecret(file: string, secret: Secret): Promise<void> {
  const fresh = `${file}.${randomUUID()}`
  await writeFile(fresh, `${secret.reveal()}\n`, { mode: 0o600, flag: 'wx', flush: true })
  await chmod(fresh, 0o600)
  await rename(fresh, file)
}
