/**
 * Why an account's password is turned. `create`: its record is new; `due`: its time has come; `manual`: somebody asked; `recover`: only
 * what an earlier turn left open is resolved.
 */
export type TurnReason = 'create' | 'due' | 'manual' | 'recover'

/** Told at each step that a turn reaches, in order; what it returns is awaited. */
export interface TurnSteps {
  reached(step: TurnStep): void | Promise<void>
}
export type TurnStep =
  | 'decided'
  | 'pending-written'
  | 'entry-found'
  | 'about-to-modify'
  | 'modified'
  | 'promoted'
  | 'pending-found'
  | 'pending-taken-over'
  | 'pending-proven'
  | 'pending-not-set'
  | 'confirmed-proven'
  | 'failure-written'
  | 'discarded'
