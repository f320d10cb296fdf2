import { readFileSync } from 'node:fs'
import { exitCode } from './cli/exit.ts'
import { controllerConfig, devConfig, type Environment, serverConfig } from './config.ts'
import { AppError, invalid } from './lib/errors.ts'
import { createLogger } from './lib/log.ts'

/**
 * The first file that runs: picks the process to be, owns signals and shutdown. Layers are loaded when they are needed, so that a
 * command line starts fast and a controller never holds the engine.
 */

export const VERSION: string = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')).version

const SHUTDOWN_MS = 30_000

/** A process that runs until it is told to stop. */
interface Running extends AsyncDisposable {
  /** Resolves with the reason when it cannot go on. */
  readonly failed?: Promise<unknown>
}

const PROCESSES = ['server', 'controller', 'dev', 'restore']

async function main(args: readonly string[], env: Environment): Promise<number> {
  const [command = 'help', ...rest] = args
  // It would print the passwords of every modify request.
  if (/\bldapts\b/.test(env['NODE_DEBUG'] ?? '')) throw invalid('NODE_DEBUG must not name ldapts: it prints passwords')
  const isHelp = PROCESSES.includes(command) && rest.some((arg) => arg === '--help' || arg === '-h')
  switch (isHelp ? 'help' : command) {
    case 'server': {
      const config = serverConfig(rest, env)
      const { startServer } = await import('./processes/server.ts')
      return run(config.logLevel, (log) => startServer({ config, log, version: VERSION }))
    }
    case 'controller': {
      const config = controllerConfig(rest, env)
      const { startControllerProcess } = await import('./processes/controller.ts')
      return run(config.logLevel, (log, signal) => startControllerProcess({ config, log, signal }))
    }
    case 'dev': {
      const config = devConfig(rest, env)
      const { startDev } = await import('./processes/dev.ts')
      return run(config.server.logLevel, (log, signal) => startDev({ config, log, version: VERSION, signal }))
    }
    case 'restore': {
      const { restoreCommand } = await import('./processes/restore.ts')
      return restoreCommand(rest, env)
    }
    default: {
      const { runCli } = await import('./cli/cli.ts')
      return runCli(isHelp ? ['help', command] : args, env, VERSION)
    }
  }
}

/** Runs a long-lived process until SIGTERM, SIGINT or its own failure, then stops it in order; a second signal ends it at once. */
async function run(
  logLevel: string,
  start: (log: ReturnType<typeof createLogger>, signal: AbortSignal) => Promise<Running>,
): Promise<number> {
  const log = createLogger({ level: logLevel })
  const stop = new AbortController()
  const { promise: ended, resolve: end } = Promise.withResolvers<number>()
  for (const name of ['SIGTERM', 'SIGINT'] as const)
    process.on(name, () => {
      if (stop.signal.aborted) process.exit(1)
      stop.abort()
      log.info({ signal: name }, 'stopping: what was begun is finished first')
      end(0)
    })
  const running = await start(log, stop.signal)
  void running.failed?.then((error) => {
    if (stop.signal.aborted) return
    stop.abort()
    log.fatal({ err: error }, 'this process cannot go on: it stops')
    end(exitCode(error))
  })
  const code = await ended
  const late = setTimeout(() => {
    log.error('shutdown took too long; what is left is given up')
    process.exit(1)
  }, SHUTDOWN_MS)
  await running[Symbol.asyncDispose]()
  clearTimeout(late)
  log.info('stopped')
  return code
}

try {
  process.exitCode = await main(process.argv.slice(2), process.env)
} catch (error) {
  process.stderr.write(
    `keyturn: ${error instanceof AppError ? error.message : ((error as Error).stack ?? String(error))}\n`,
  )
  process.exitCode = exitCode(error)
}
