import cron from 'node-cron'
import { invalid } from './errors.ts'

/** Throws `invalid` naming `field` unless `text` is a five-field cron schedule. */
export function requireSchedule(text: string, field: string): void {
  if (text.trim().split(/\s+/).length !== 5 || !cron.validate(text))
    throw invalid(`${field} must be a five-field cron schedule such as "0 3 * * 6"`)
}
