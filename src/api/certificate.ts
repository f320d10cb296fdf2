import { type FSWatcher, watch } from 'node:fs'
import path from 'node:path'
import type { Clock } from '../lib/clock.ts'
import { messageOf } from '../lib/errors.ts'
import type { Logger } from '../lib/log.ts'
import type { Random } from '../lib/random.ts'
import { runWorker } from '../lib/worker.ts'
import { ensureOwnPair, type OwnCa, readPair, type TlsPair } from './tls.ts'

/** Where a listener's certificate comes from: two PEM files that somebody else renews, or a CA of our own. */
export type TlsSource = { readonly certFile: string; readonly keyFile: string } | OwnCa

interface Deps {
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
}

export function loadPair(source: TlsSource, deps: Deps): Promise<TlsPair> {
  return 'certFile' in source ? readPair(source) : ensureOwnPair(source, deps)
}

// Files are also looked at without being told: not every file system tells.
const LOOK_MS = 30_000
const RENEW_LOOK_MS = 3_600_000

/** Hands every new certificate to `use` until the signal aborts. One that cannot be used is logged, and the old one stays in use. */
export async function followPair(
  source: TlsSource,
  current: TlsPair,
  use: (pair: TlsPair) => void,
  { signal, ...deps }: Deps & { readonly signal: AbortSignal },
): Promise<void> {
  const { clock, log } = deps
  let used = current
  let change = Promise.withResolvers<void>()
  const watchers = watchedDirectories(source).map((directory) => watchDirectory(directory, () => change.resolve(), log))
  const tick = async (): Promise<number> => {
    change = Promise.withResolvers<void>()
    try {
      const pair = await loadPair(source, deps)
      if (pair.cert !== used.cert || pair.key !== used.key) {
        use(pair)
        used = pair
        log.info('the TLS certificate was replaced')
      }
    } catch (error) {
      log.error({ reason: messageOf(error) }, 'the new TLS certificate cannot be used; the old one stays')
    }
    return 'certFile' in source ? LOOK_MS : RENEW_LOOK_MS
  }
  const onError = (error: unknown) =>
    log.error({ reason: messageOf(error) }, 'the TLS certificate could not be looked at')
  await runWorker({ name: 'certificate', tick, wake: () => change.promise }, { clock, signal, onError })
  for (const watcher of watchers) watcher?.close()
}

/** The directories, not the files: files are replaced by renaming, and a mounted Secret by turning a link. */
function watchedDirectories(source: TlsSource): string[] {
  return 'certFile' in source ? [...new Set([path.dirname(source.certFile), path.dirname(source.keyFile)])] : []
}

function watchDirectory(directory: string, onChange: () => void, log: Logger): FSWatcher | undefined {
  try {
    const watcher = watch(directory, { persistent: false }, onChange)
    watcher.on('error', () => watcher.close())
    return watcher
  } catch (error) {
    log.warn(
      { directory, reason: messageOf(error) },
      'cannot watch for new TLS certificates; looking every 30 s instead',
    )
    return undefined
  }
}
