import { randomUUID } from 'node:crypto'
import { chmod, rename, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import path from 'node:path'
import { DEFAULT_LIMITS } from '../api/limits.ts'
import type { Listener } from '../api/listener.ts'
import { startApi } from '../api/server.ts'
import type { ServerConfig } from '../config.ts'
import { openAuditFile } from '../engine/audit/file-device.ts'
import { type Engine, startEngine } from '../engine/engine.ts'
import { openFileSeal } from '../engine/seal/file-seal.ts'
import { openBarrier } from '../engine/seal/keyring.ts'
import { openDriver, storeExists } from '../engine/storage/open.ts'
import { Store } from '../engine/storage/store.ts'
import { systemClock } from '../lib/clock.ts'
import type { Logger } from '../lib/log.ts'
import { systemRandom } from '../lib/random.ts'
import type { Secret } from '../lib/secret.ts'

/** `keyturn server`: store, engine and API, opened in this order and closed in the reverse one. */
export interface ServerProcess extends AsyncDisposable {
  readonly engine: Engine
  readonly addresses: readonly string[]
  readonly failed: Promise<unknown>
}

export async function startServer(deps: {
  readonly config: ServerConfig
  readonly log: Logger
  readonly version: string
}): Promise<ServerProcess> {
  const { config, log, version } = deps
  await using stack = new AsyncDisposableStack()
  const location = config.dataDir
  // A key is made only for a new store: a lost key beside an old store must be said, not papered over.
  const seal = openFileSeal(config.sealKeyFile, { createIfMissing: !storeExists(location) })
  const driver = stack.use(openDriver(location))
  const barrier = await openBarrier(driver, seal)
  const audit = config.auditLog === 'off' ? undefined : stack.use(await openAuditFile(config.auditLog))
  const engine = stack.use(
    await startEngine({
      store: new Store(driver, barrier, systemClock, (error) =>
        log.error({ err: error }, 'a part of the store is damaged and was left out: restore a backup'),
      ),
      barrier,
      // SQLite lets one process in: what another one left open is left by a dead one.
      isExclusive: true,
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
  const usual = ['localhost', '127.0.0.1', '::1', hostname()]
  const names = [...new Set([...config.listen.map(({ host }) => host), ...config.tlsNames, ...usual])]
  const tls = config.tls ?? {
    directory: path.join(config.dataDir, 'tls'),
    names: names.filter((name) => !isWildcard(name)),
  }
  const api = stack.use(
    await startApi({
      engine,
      listeners: [
        ...config.listen.map(
          (at): Listener => ({
            kind: 'tcp',
            ...at,
            ...(config.plainHttp ? { allowPlainHttp: true } : { tls }),
          }),
        ),
        ...(config.socket !== undefined ? [{ kind: 'unix', path: config.socket, mode: 0o600 } as const] : []),
      ],
      trustedProxies: config.trustedProxies,
      proxyProtocol: config.proxyProtocol,
      limits: DEFAULT_LIMITS,
      clock: systemClock,
      random: systemRandom,
      log,
    }),
  )
  log.info({ addresses: api.addresses, version, dataDir: config.dataDir }, 'keyturn server is ready')
  const resources = stack.move()
  const failed = driver.failed ?? new Promise<never>(() => undefined)
  return { engine, addresses: api.addresses, failed, [Symbol.asyncDispose]: () => resources.disposeAsync() }
}

function isWildcard(host: string): boolean {
  return host === '' || host === '0.0.0.0' || host === '::'
}

/** Writes a token for its owner alone: 0600, whole or not at all. */
export async function keepSecret(file: string, secret: Secret): Promise<void> {
  const fresh = `${file}.${randomUUID()}`
  await writeFile(fresh, `${secret.reveal()}\n`, { mode: 0o600, flag: 'wx', flush: true })
  await chmod(fresh, 0o600)
  await rename(fresh, file)
}
