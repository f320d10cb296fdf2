import { expect, test } from 'vitest'
import { blockedUntil } from './blocked.ts'

const now = new Date('2026-05-01T10:00:00Z')
const since = (time: string, status: 'True' | 'False' = 'False') => [
  { type: 'SecretSynced', status, reason: 'x', message: '', observedGeneration: 1, lastTransitionTime: time },
]

test.each([
  { what: 'at first', before: undefined, waitS: 3 },
  { what: 'what was well until now', before: since('2026-05-01T09:00:00Z', 'True'), waitS: 3 },
  { what: 'after seconds', before: since('2026-05-01T09:59:50Z'), waitS: 3 },
  { what: 'after minutes', before: since('2026-05-01T09:57:00Z'), waitS: 18 },
  { what: 'after days', before: since('2026-04-27T10:00:00Z'), waitS: 60 },
  { what: 'a time to come', before: since('2026-05-01T11:00:00Z'), waitS: 3 },
])('$what: $waitS s', ({ before, waitS }) => {
  expect(blockedUntil('SecretSynced', before, now).getTime() - now.getTime()).toBe(waitS * 1000)
})
