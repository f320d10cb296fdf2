import { inspect } from 'node:util'

/** A password, token or key on its way through the program. Printing, logging or serialising it shows `***`. */
export class Secret {
  readonly #value: string
  constructor(value: string) {
    this.#value = value
  }
  /** The value itself. Each call is a line that a reviewer looks at. */
  reveal(): string {
    return this.#value
  }
  get isEmpty(): boolean {
    return this.#value === ''
  }
  equals(other: Secret): boolean {
    return this.#value === other.#value
  }
  toString(): string {
    return '***'
  }
  toJSON(): string {
    return '***'
  }
  [inspect.custom](): string {
    return '***'
  }
}
