import type { Fields } from '../client/transport.ts'
import { AppError } from '../lib/errors.ts'
import type { Secret } from '../lib/secret.ts'
import { type As, textOf } from './access.ts'
import { no, type Statement, yes } from './conditions.ts'
import { type AppliedMacs, changesOf, decideConfig, writeMac } from './directory-config.ts'
import type { ReconcilerDeps } from './reconcile.ts'
import type { EventNote } from './source/source.ts'

/*
 * Writes the configuration of a mount and tells how the mount stands with its directory. A name or password that replaces others is proven
 * by one bind before it is taken. One that is refused is not presented again until it changes or its time has come: each try could lock the
 * account that everything depends on.
 */

const REFUSED_MS = 300_000
/** How soon a mount is looked at again: nobody tells when its directory comes and goes. */
const OPEN_MS = 30_000
const CLOSED_MS = 300_000

export interface WantedConfig {
  /** Of the mount, with `auth/` where it is one of logins. */
  readonly mount: string
  readonly as: As
  /** Fields that a read returns. */
  readonly readable: Fields
  /** Those that only a write has. */
  readonly hidden: Fields
  readonly bindPassword: Secret | undefined
  readonly applied: AppliedMacs
}

export interface EnsuredConfig {
  readonly changed: boolean
  /** What the status remembers of it. */
  readonly applied: AppliedMacs
  /** Why what is declared is not in force. */
  readonly refused: string | undefined
  readonly connected: Statement
  readonly circuit: 'Closed' | 'Open'
  /** To tell of what was written. */
  readonly notes: readonly EventNote[]
  readonly lookAgainAt: Date
  readonly retry?: AppError
}

export type EnsureConfig = (wanted: WantedConfig) => Promise<EnsuredConfig>

export function configWriter({ engine, mac, clock }: Pick<ReconcilerDeps, 'engine' | 'mac' | 'clock'>): EnsureConfig {
  /** When what was refused may be tried again, by its MAC. Empty after a start: then the wait begins anew. */
  const waits = new Map<string, Date>()
  const later = (ms: number) => new Date(clock.now().getTime() + ms)

  return async ({ mount, as, readable, hidden, bindPassword, applied }) => {
    const path = `${mount}/config`
    const seen = await engine.read(path, as)
    const { write, bindSecretMAC, configMAC } = decideConfig(
      readable,
      hidden,
      bindPassword,
      { config: seen, applied },
      mac,
    )
    const macs = { bindSecretMAC, configMAC, refusedConfigMAC: undefined }
    const before = circuitOf(seen)
    const stays = { changed: false, applied, notes: [], ...before }
    if (!write) {
      const lookAgainAt = later(before.circuit === 'Open' ? OPEN_MS : CLOSED_MS)
      return { ...stays, applied: macs, refused: undefined, lookAgainAt }
    }
    const refusedMAC = writeMac({ ...write, mount }, mac)
    if (applied.refusedConfigMAC === refusedMAC) {
      const until = waits.get(refusedMAC) ?? later(REFUSED_MS)
      waits.set(refusedMAC, until)
      if (until > clock.now()) return { ...stays, refused: REFUSED, lookAgainAt: until }
    }
    try {
      const warnings = await engine.write(path, { ...write, prove: true }, as)
      waits.delete(refusedMAC)
      const notes = [...warnings.map(warning), ...(seen ? adoption(seen, readable, as) : [])]
      return { changed: true, applied: macs, refused: undefined, notes, ...CONNECTED, lookAgainAt: later(CLOSED_MS) }
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      if (error.reason === 'unproven')
        return {
          ...stays,
          refused: error.message,
          connected: away(error.message),
          lookAgainAt: later(OPEN_MS),
          retry: error,
        }
      if (error.reason !== 'bind-refused') throw error
      if (applied.refusedConfigMAC !== undefined) waits.delete(applied.refusedConfigMAC)
      waits.set(refusedMAC, later(REFUSED_MS))
      const known = { ...applied, refusedConfigMAC: refusedMAC }
      return { ...stays, applied: known, refused: REFUSED, lookAgainAt: later(REFUSED_MS) }
    }
  }
}

const REFUSED =
  'The directory refuses the new name and password: those before stay in force. It is asked again every 5 minutes.'

type Circuit = Pick<EnsuredConfig, 'circuit' | 'connected'>

const CONNECTED: Circuit = {
  circuit: 'Closed',
  connected: yes('Connected', 'Connected', 'Nothing is known to be wrong between this mount and its directory.'),
}

/** How the engine says that the mount stands with its directory. */
function circuitOf(config: Readonly<Record<string, unknown>> | undefined): Circuit {
  const circuit = config?.['circuit']
  if (typeof circuit !== 'object' || circuit === null) return CONNECTED
  const { state, why, since } = circuit as Record<string, unknown>
  if (state !== 'open') return CONNECTED
  const from = textOf({ since }, 'since')
  return {
    circuit: 'Open',
    connected:
      why === 'bind-refused'
        ? no('Connected', 'BindFailed', `The directory refuses the bind of this mount since ${from}.`)
        : away(`The directory cannot be reached since ${from}; it is tried again with the work that needs it.`),
  }
}

function warning(note: string): EventNote {
  return { type: 'Warning', reason: 'ConfigWarning', note, action: 'Configure' }
}

/** What becomes of a configuration that was not ours. */
function adoption(seen: Readonly<Record<string, unknown>>, readable: Fields, { owner }: As): EventNote[] {
  if (textOf(seen, 'owner') === owner || textOf(seen, 'binddn') === '') return []
  const note = `a configuration made otherwise is taken over; ${changesOf(seen, readable).join(', ') || 'nothing changes'}`
  return [{ type: 'Normal', reason: 'Adopted', note, action: 'Configure' }]
}

function away(message: string): Statement {
  return no('Connected', 'Unreachable', message)
}
