import type { Random } from './random.ts'

/** How long to wait before try `attempt` (1 is the first retry): doubling from `firstMs` to `limitMs`, with ±`jitter` of chance. */
export function backoffMs(
  attempt: number,
  { firstMs, limitMs, jitter = 0.2 }: { firstMs: number; limitMs: number; jitter?: number },
  random: Random,
): number {
  const base = Math.min(limitMs, firstMs * 2 ** Math.min(attempt - 1, 40))
  const spread = (random.integer(2001) - 1000) / 1000
  return Math.round(base * (1 + spread * jitter))
}
