import { type Logger, pino } from 'pino'

export type { Logger }

/** JSON lines on standard error, so that standard output stays free for what a program asked for. */
export function createLogger(options: { level: string; name?: string }): Logger {
  return pino(
    {
      level: options.level,
      base: options.name ? { name: options.name } : null,
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    pino.destination({ fd: 2, sync: true }),
  )
}
