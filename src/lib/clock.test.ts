import { expect, test } from 'vitest'
import { systemClock } from './clock.ts'
import { unavailable } from './errors.ts'

test('a sleep that is aborted rejects with the reason, before it began and while it lasts', async () => {
  const reason = unavailable('the server is stopping')
  await expect(systemClock.sleep(60_000, AbortSignal.abort(reason))).rejects.toBe(reason)
  const stop = new AbortController()
  const slept = systemClock.sleep(60_000, stop.signal)
  stop.abort(reason)
  await expect(slept).rejects.toBe(reason)
})
