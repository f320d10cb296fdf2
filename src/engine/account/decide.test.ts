import { describe, expect, test } from 'vitest'
import { Secret } from '../../lib/secret.ts'
import type { AccountState } from './account.ts'
import { type Decision, decide } from './decide.ts'
import type { TurnReason } from './turn-step.ts'

const now = new Date('2026-03-01T12:00:00Z')
const later = new Date('2026-03-01T12:03:00Z')
const earlier = new Date('2026-03-01T11:00:00Z')
const MINE = 'this-process'
const THEIRS = 'another-process'

const fresh: AccountState = { credentialVersion: 0 }
const settled: AccountState = {
  credentialVersion: 3,
  confirmed: { password: new Secret('old'), since: earlier },
  previous: new Secret('older'),
}
const failing: AccountState = {
  ...settled,
  failure: { class: 'rejected', message: 'no', count: 2, since: earlier, retryAt: later },
}
const turning = (
  base: AccountState,
  pending: { holder: string; heldUntil: Date; maybeSent?: boolean },
): AccountState => ({
  ...base,
  pending: { password: new Secret('new'), generatedAt: earlier, maybeSent: true, ...pending },
})

const mineHeld = turning(settled, { holder: MINE, heldUntil: later })
const mineOver = turning(settled, { holder: MINE, heldUntil: earlier })
const theirsHeld = turning(settled, { holder: THEIRS, heldUntil: later })
const theirsOver = turning(settled, { holder: THEIRS, heldUntil: earlier })
const theirsEndsNow = turning(settled, { holder: THEIRS, heldUntil: now })
const unsent = turning(settled, { holder: THEIRS, heldUntil: later, maybeSent: false })
const unknown: AccountState = {
  ...mineOver,
  failure: { class: 'unknown-outcome', message: 'no answer', count: 2, since: earlier, retryAt: later },
}
const newTheirsHeld = turning(fresh, { holder: THEIRS, heldUntil: later })
const newTheirsOver = turning(fresh, { holder: THEIRS, heldUntil: earlier })

const begin: Decision = { do: 'begin' }
const finish: Decision = { do: 'finish' }
const resolve: Decision = { do: 'resolve' }
const wait: Decision = { do: 'wait', until: later, why: 'held' }
const early: Decision = { do: 'wait', until: later, why: 'too-early' }

interface Case {
  readonly name: string
  readonly account: AccountState
  readonly whys: readonly TurnReason[]
  readonly exclusive?: boolean
  /** The version when the turn was asked for; the account's own by default. */
  readonly asked?: number
  readonly want: Decision
}
const asking: readonly TurnReason[] = ['create', 'due', 'manual']
const all: readonly TurnReason[] = [...asking, 'recover']

describe('decide', () => {
  const cases: readonly Case[] = [
    { name: 'nothing known yet', account: fresh, whys: asking, want: begin },
    { name: 'nothing known yet and nothing open', account: fresh, whys: ['recover'], want: finish },
    { name: 'a confirmed password', account: settled, whys: asking, want: begin },
    { name: 'a confirmed password and nothing open', account: settled, whys: ['recover'], want: finish },
    { name: 'a failure on record', account: failing, whys: asking, want: begin },
    { name: 'a failure on record and nothing open', account: failing, whys: ['recover'], want: finish },
    { name: 'somebody turned it since', account: settled, whys: asking, asked: 2, want: finish },
    { name: 'somebody turned it twice since', account: settled, whys: asking, asked: 1, want: finish },
    { name: 'turned since, and the next is in the air', account: theirsHeld, whys: asking, asked: 2, want: finish },
    { name: 'turned since, what is open still waits', account: theirsHeld, whys: ['recover'], asked: 2, want: wait },
    { name: 'turned since, what is open is resolved', account: theirsOver, whys: ['recover'], asked: 2, want: resolve },
    { name: 'another one is at work', account: theirsHeld, whys: all, want: wait },
    { name: 'another one was at work', account: theirsOver, whys: all, want: resolve },
    { name: 'its time ends this instant', account: theirsEndsNow, whys: all, want: resolve },
    { name: 'who held it is dead', account: theirsHeld, whys: all, exclusive: true, want: resolve },
    { name: 'who held it is dead long since', account: theirsOver, whys: all, exclusive: true, want: resolve },
    { name: 'an earlier turn of ours left it', account: mineHeld, whys: all, want: resolve },
    { name: 'an earlier turn of ours left it, long ago', account: mineOver, whys: all, want: resolve },
    { name: 'an unknown outcome, asked by hand too soon', account: unknown, whys: ['manual'], want: early },
    { name: 'an unknown outcome, whose time has come', account: unknown, whys: ['due', 'recover'], want: resolve },
    { name: 'nobody was told', account: unsent, whys: asking, want: begin },
    { name: 'nobody was told, nothing to resolve', account: unsent, whys: ['recover'], want: finish },
    { name: 'a creation of another process at work', account: newTheirsHeld, whys: all, want: wait },
    { name: 'a creation of another process left over', account: newTheirsOver, whys: all, want: resolve },
    { name: 'a creation of a dead process', account: newTheirsHeld, whys: all, exclusive: true, want: resolve },
  ]
  test.each(cases.flatMap((one) => one.whys.map((why) => ({ ...one, why }))))(
    '$name, $why: $want.do',
    ({ account, why, exclusive = false, asked, want }) => {
      const context = { now, holder: MINE, isExclusive: exclusive, askedAtVersion: asked ?? account.credentialVersion }
      expect(decide(account, why, context)).toEqual(want)
    },
  )
})
