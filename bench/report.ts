import { quantile } from './load.ts'

/** What a section measured, in the order it was measured. */
export interface Row {
  readonly section: string
  readonly what: string
  readonly value: number
  readonly unit: string
  readonly note?: string
}

/** Collects the rows of a run, prints each as it comes, and all of them as one JSON line at the end. */
export class Report {
  readonly #rows: Row[] = []
  #section = ''

  begin(section: string): void {
    this.#section = section
    console.log(`\n${section}`)
  }

  add(what: string, value: number, unit: string, note?: string): void {
    const rounded = Number(value.toPrecision(value >= 1000 ? 4 : 3))
    this.#rows.push({ section: this.#section, what, value: rounded, unit, ...(note !== undefined && { note }) })
    console.log(`  ${what.padEnd(58)} ${String(rounded).padStart(8)} ${unit.padEnd(6)} ${note ?? ''}`.trimEnd())
  }

  /** Times of the same thing: 95 of 100 did not exceed the value. */
  addTimes(what: string, timesMs: readonly number[]): void {
    const [p50, p99, max] = [0.5, 0.99, 1].map((part) => quantile(timesMs, part).toFixed(0))
    this.add(
      `${what}, p95`,
      quantile(timesMs, 0.95),
      'ms',
      `p50 ${p50}, p99 ${p99}, max ${max} ms of ${timesMs.length}`,
    )
  }

  json(): string {
    return JSON.stringify(this.#rows)
  }
}
