import { invalid } from './errors.ts'

const UNIT_NS: Record<string, bigint> = {
  ns: 1n,
  us: 1_000n,
  µs: 1_000n,
  μs: 1_000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
  d: 86_400_000_000_000n,
}
// Go's time.Duration is a signed 64-bit count of nanoseconds, about 292 years.
const LONGEST_NS = 9_223_372_036_854_775_807n
/** Reading a number takes longer than in proportion to its digits. */
const LONGEST_TEXT = 64
const PART = /^(\d+)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h|d)|^\.(\d+)(ns|us|µs|μs|ms|s|m|h|d)/

/**
 * Milliseconds (whole seconds) of a duration as the API accepts it: a number or digits are seconds; else a Go
 * duration such as `300ms`, `1.5h`, `2h45m`, with days (`7d`, `1d12h`) allowed; empty is 0. Sub-second parts are cut off.
 * Throws `invalid` naming `field` for anything else, for negative values and beyond about 292 years.
 */
export function parseDurationMs(value: string | number, field: string): number {
  const refuse = () => invalid(`${field} must be a duration such as 3600, "90s", "1h" or "7d"`)
  let ns: bigint
  if (typeof value === 'number') {
    if (!Number.isFinite(value) || value < 0) throw refuse()
    ns = BigInt(Math.trunc(value)) * 1_000_000_000n
  } else {
    const text = value.trim()
    if (text === '' || text === '0') return 0
    if (text.length > LONGEST_TEXT) throw refuse()
    if (/^\d+$/.test(text)) ns = BigInt(text) * 1_000_000_000n
    else {
      ns = 0n
      for (let rest = text; rest !== ''; ) {
        const match = PART.exec(rest)
        if (!match) throw refuse()
        const unit = UNIT_NS[match[3] ?? match[5] ?? ''] ?? 0n
        const fraction = match[2] ?? match[4] ?? ''
        ns += BigInt(match[1] ?? '0') * unit
        if (fraction !== '') ns += (BigInt(fraction) * unit) / 10n ** BigInt(fraction.length)
        rest = rest.slice(match[0].length)
      }
    }
  }
  if (ns > LONGEST_NS) throw refuse()
  return Number(ns / 1_000_000_000n) * 1000
}
