import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Informer } from '../../src/controller/runtime/informer.ts'
import { KubeClient } from '../../src/controller/runtime/kube-client.ts'
import { CONFIG_MAPS } from '../../src/controller/runtime/kube-object.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { createLogger } from '../../src/lib/log.ts'
import { systemRandom } from '../../src/lib/random.ts'
import { until } from '../support/cluster.ts'
import {
  failure,
  fastClock,
  reply,
  type ScriptedKube,
  type SeenRequest,
  scriptedKube,
} from '../support/scripted-kube.ts'
import { TestClock } from '../support/test-clock.ts'

let server: ScriptedKube
let client: KubeClient
let stop: AbortController
let running: Promise<void>
/** Names and versions that the next lists give; what the n-th watch does. */
let listed: { version: string; items: readonly Item[] }
let watches: ((response: ServerResponse, request: SeenRequest) => void)[]
let watched: SeenRequest[]
let heard: string[]
/** Whether the server can begin a watch with the state itself. */
let streams: boolean

/** Waits are shorter, while no limit gets shorter than a pause of this process. */
const FASTER = 10

type Item = readonly [name: string, version: string, uid?: string]

beforeEach(async () => {
  server = await scriptedKube()
  stop = new AbortController()
  listed = { version: '10', items: [] }
  watches = []
  watched = []
  heard = []
  streams = false
  server.handle = (request, response) => {
    if (request.query.has('sendInitialEvents') && !streams) return failure(response, 422, 'Invalid')
    if (!request.query.has('watch')) {
      reply(response, 200, { metadata: { resourceVersion: listed.version }, items: listed.items.map(object) })
      return
    }
    watched.push(request)
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders()
    watches.shift()?.(response, request)
  }
})
afterEach(async () => {
  stop.abort()
  await running
  await client[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

function start(
  clock: Clock = fastClock(FASTER),
  listen: (what: string) => void = (what) => heard.push(what),
): Informer {
  const deps = { clock, random: systemRandom, log: createLogger({ level: 'silent' }) }
  client = new KubeClient({ server: server.url, namespace: undefined, load: async () => ({}) }, deps)
  const informer = new Informer({ type: CONFIG_MAPS, namespace: 'ns' }, { client, ...deps })
  informer.onChange(({ type, object }) => listen(`${type} ${object.metadata.name}@${object.metadata.resourceVersion}`))
  running = informer.run(stop.signal)
  return informer
}

function object([name, version, uid = `uid-${name}`]: Item) {
  return { metadata: { name, namespace: 'ns', uid, resourceVersion: version } }
}
const line = (type: string, ...item: Item) => `${JSON.stringify({ type, object: object(item) })}\n`
const bookmark = (version: string) =>
  `${JSON.stringify({ type: 'BOOKMARK', object: { metadata: { resourceVersion: version } } })}\n`
const watchesSeen = (count: number) => until(10, `${count} watches`, () => watched.length >= count)
const stateEnd = (version: string) =>
  `${JSON.stringify({
    type: 'BOOKMARK',
    object: { metadata: { resourceVersion: version, annotations: { 'k8s.io/initial-events-end': 'true' } } },
  })}\n`
const lists = () => server.requests.filter(({ query }) => !query.has('watch'))
const versionOf = (watch: number) => watched[watch]?.query.get('resourceVersion')

test('asks for bookmarks and a limited time, and names its namespace', async () => {
  start()
  await watchesSeen(1)
  expect(watched[0]?.path).toBe('/api/v1/namespaces/ns/configmaps')
  expect(watched[0]?.query.get('allowWatchBookmarks')).toBe('true')
  const seconds = Number(watched[0]?.query.get('timeoutSeconds'))
  expect(seconds).toBeGreaterThanOrEqual(300)
  expect(seconds).toBeLessThanOrEqual(600)
  expect(lists()[0]?.query.get('limit')).toBe('500')
})

test('a half-open connection is given up after 90 s without a byte, also when nothing ever came', async () => {
  const clock = new TestClock()
  const informer = start(clock)
  await watchesSeen(1)
  await clock.advance(89_000)
  expect(watched).toHaveLength(1)
  await clock.advance(2_000)
  await until(10, 'a second watch', async () => {
    await clock.advance(1_000)
    return watched.length >= 2
  })
  expect(versionOf(1)).toBe('10')
  expect(informer.relists).toBe(1)
})

test('a bookmark each minute keeps a quiet watch alive and moves its version', async () => {
  const clock = new TestClock()
  const informer = start(clock)
  let quiet: ServerResponse | undefined
  watches.push((response) => {
    quiet = response
  })
  await watchesSeen(1)
  for (let minute = 1; minute <= 5; minute++) {
    await clock.advance(60_000)
    quiet?.write(bookmark(String(10 + minute)))
    await until(5, 'the bookmark to arrive', () => informer.silentMs === 0)
  }
  expect(watched).toHaveLength(1)
  quiet?.end()
  await until(10, 'a second watch', async () => {
    await clock.advance(1_000)
    return watched.length >= 2
  })
  expect(versionOf(1)).toBe('15')
})

test('a connection reset in the middle of a line loses nothing and tells nothing twice', async () => {
  watches.push((response) => {
    response.write(line('ADDED', 'a', '11'))
    response.write(line('ADDED', 'b', '12').slice(0, 20), () => response.socket?.resetAndDestroy())
  })
  watches.push((response) => response.write(line('ADDED', 'a', '11') + line('ADDED', 'b', '12')))
  start()
  await until(10, 'b', () => heard.includes('added b@12'))
  expect(heard).toEqual(['added a@11', 'added b@12'])
  expect(versionOf(1)).toBe('11')
})

test('characters and lines split over packets come out whole', async () => {
  const bytes = Buffer.from(line('ADDED', 'größe-漢字-🔑', '11') + line('MODIFIED', 'größe-漢字-🔑', '12'))
  watches.push((response) => {
    response.socket?.setNoDelay(true)
    const next = (at: number) => {
      if (at < bytes.length) response.write(bytes.subarray(at, at + 1), () => setImmediate(next, at + 1))
    }
    next(0)
  })
  start()
  await until(10, 'both events', () => heard.length === 2)
  expect(heard).toEqual(['added größe-漢字-🔑@11', 'updated größe-漢字-🔑@12'])
})

test.each([
  {
    form: 'a status',
    expire: (response: ServerResponse) => response.end(),
    status: 410,
  },
  {
    form: 'an ERROR event',
    expire: (response: ServerResponse) =>
      response.end(`${JSON.stringify({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } })}\n`),
    status: 200,
  },
])('410 as $form lists anew and tells what changed meanwhile', async ({ expire, status }) => {
  listed = {
    version: '10',
    items: [
      ['kept', '5'],
      ['gone', '6'],
      ['changed', '7'],
      ['remade', '8', 'old'],
    ],
  }
  const plain = server.handle
  let expired = false
  server.handle = (request, response) => {
    if (!request.query.has('resourceVersion') || expired) return plain(request, response)
    expired = true
    listed = {
      version: '20',
      items: [
        ['kept', '5'],
        ['changed', '15'],
        ['remade', '16', 'new'],
        ['made', '17'],
      ],
    }
    if (status === 410) failure(response, 410, 'Expired')
    else expire(response.writeHead(200))
  }
  const informer = start()
  await until(10, 'the second list', () => heard.includes('added made@17'))
  expect(heard.slice(0, 4)).toEqual(['added kept@5', 'added gone@6', 'added changed@7', 'added remade@8'])
  expect(heard.slice(4)).toEqual([
    'deleted gone@20',
    'updated changed@15',
    'deleted remade@20',
    'added remade@16',
    'added made@17',
  ])
  await watchesSeen(1)
  expect(versionOf(0)).toBe('20')
  expect(informer.missedEvents).toBe(0)
})

test('never stops: errors, refusals, garbage and resets are all got over, with growing waits', async () => {
  const clock = fastClock(FASTER)
  const plain = server.handle
  const faults: ((response: ServerResponse) => void)[] = [
    (r) => failure(r, 500, 'InternalError'),
    (r) => failure(r, 403, 'Forbidden'),
    (r) => r.writeHead(200).end('no json at all\n'),
    (r) => r.socket?.resetAndDestroy(),
    (r) => failure(r, 503, 'ServiceUnavailable'),
  ]
  server.handle = (request, response) => {
    const fault = request.query.has('resourceVersion') ? faults.shift() : undefined
    if (fault) fault(response)
    else plain(request, response)
  }
  watches.push((response) => response.write(line('ADDED', 'late', '11')))
  const informer = start(clock)
  await until(20, 'the event after all faults', () => heard.includes('added late@11'))
  expect(informer.state).toBe('synced')
  expect(informer.relists).toBe(1)
  expect(Math.min(...clock.slept.filter((ms) => ms < 9_000))).toBeGreaterThanOrEqual(800)
})

test('a server that ends every watch at once is not hammered', async () => {
  const clock = new TestClock()
  server.handle = ((plain) => (request, response) => {
    plain(request, response)
    if (request.query.has('resourceVersion')) response.end()
  })(server.handle)
  start(clock)
  await watchesSeen(1)
  for (let second = 0; second < 60; second++) await clock.advance(1_000)
  expect(watched.length).toBeGreaterThan(2)
  expect(watched.length).toBeLessThan(40)
})

test('after an outage an expired version costs no further wait, but a server that knows no other answer is not hammered', async () => {
  const clock = new TestClock()
  const informer = start(clock)
  await watchesSeen(1)
  const plain = server.handle
  server.handle = (_, response) => failure(response, 503, 'ServiceUnavailable')
  server.dropConnections()
  for (let second = 0; second < 60; second++) await clock.advance(1_000)
  let expiries = 0
  server.handle = (request, response) => {
    if (!request.query.has('resourceVersion')) return plain(request, response)
    expiries += 1
    failure(response, 410, 'Expired')
  }
  await until(20, 'the first expiry', async () => {
    if (expiries === 0) await clock.advance(1_000)
    return expiries > 0
  })
  await until(5, 'the new state', () => informer.relists === 2)
  for (let second = 0; second < 60; second++) await clock.advance(1_000)
  expect(expiries).toBeLessThan(15)
})

test('a listener that throws stops neither the informer nor the others', async () => {
  watches.push((response) => response.write(line('ADDED', 'a', '11') + line('ADDED', 'b', '12')))
  const informer = start(undefined, (what) => {
    heard.push(what)
    throw new Error('listener')
  })
  await until(10, 'both', () => heard.length === 2)
  expect(informer.store.size).toBe(2)
})

test('the slow comparison finds, repairs and counts an event that was missed, and only those', async () => {
  listed = {
    version: '10',
    items: [
      ['a', '5'],
      ['b', '6'],
    ],
  }
  const clock = new TestClock()
  let quiet: ServerResponse | undefined
  watches.push((response) => {
    quiet = response
    response.write(bookmark('30'))
  })
  const informer = start(clock)
  await watchesSeen(1)
  await until(5, 'the bookmark', () => informer.silentMs === 0 && informer.store.size === 2)
  // The server's state at version 30 has a change of `a` and the end of `b`, which no watch has told.
  listed = { version: '30', items: [['a', '20']] }
  const exact = () => server.requests.find((r) => r.query.get('resourceVersionMatch') === 'Exact')
  await until(20, 'the comparison', async () => {
    await clock.advance(60_000)
    if (!exact()) quiet?.write(bookmark('30'))
    await until(5, 'the bookmark', () => informer.silentMs === 0)
    return exact() && informer.missedEvents > 0
  })
  expect(exact()?.query.get('resourceVersion')).toBe('30')
  expect(clock.monotonicMs()).toBeGreaterThanOrEqual(24 * 60_000)
  expect(clock.monotonicMs()).toBeLessThan(40 * 60_000)
  expect(informer.missedEvents).toBe(2)
  expect(heard.slice(2)).toEqual(['deleted b@30', 'updated a@20'])
})

test('a resource that is not installed is asked for each minute; one that is uninstalled empties the store', async () => {
  const clock = new TestClock()
  const plain = server.handle
  server.handle = (_, response) => failure(response, 404, 'NotFound')
  const informer = start(clock)
  await informer.synced
  expect(informer.state).toBe('missing')
  const asked = server.requests.length
  for (let minute = 0; minute < 3; minute++) {
    await clock.advance(60_000)
    await until(5, 'the next look', () => server.requests.length === asked + minute + 1)
  }
  listed = { version: '10', items: [['a', '5']] }
  server.handle = plain
  await until(10, 'the resource to be found', async () => {
    await clock.advance(60_000)
    return informer.state === 'synced'
  })
  server.handle = (_, response) => failure(response, 404, 'NotFound')
  await until(10, 'the resource to be missed', async () => {
    await clock.advance(10_000)
    return informer.state === 'missing'
  })
  expect(heard).toEqual(['added a@5', 'deleted a@5'])
})

test.each([
  { what: '403', refuse: (r: ServerResponse) => failure(r, 403, 'Forbidden') },
  { what: '504', refuse: (r: ServerResponse) => failure(r, 504, 'Timeout') },
  { what: 'garbage', refuse: (r: ServerResponse) => r.writeHead(200).end('<html>\n') },
])('whose watches are all answered by $what is silent, whatever bytes come', async ({ refuse }) => {
  const clock = new TestClock()
  const informer = start(clock)
  await watchesSeen(1)
  const plain = server.handle
  server.handle = (request, response) => {
    if (request.query.has('watch')) refuse(response)
    else plain(request, response)
  }
  await until(20, 'four minutes of silence', async () => {
    await clock.advance(10_000)
    return clock.monotonicMs() > 5 * 60_000
  })
  expect(informer.silentMs).toBeGreaterThan(180_000)
  expect(informer.state).toBe('failing')
})

test('a server whose store was set back is listed anew, and its older state is the one that counts', async () => {
  listed = {
    version: '30',
    items: [
      ['kept', '5'],
      ['changed', '25'],
      ['made', '26'],
    ],
  }
  const plain = server.handle
  server.handle = (request, response) => {
    if (request.query.get('resourceVersion') !== '30') return plain(request, response)
    listed = {
      version: '20',
      items: [
        ['kept', '5'],
        ['changed', '15'],
        ['deleted', '16'],
      ],
    }
    const details = { causes: [{ reason: 'ResourceVersionTooLarge' }] }
    reply(response, 504, { code: 504, reason: 'Timeout', message: 'Too large resource version', details })
  }
  const informer = start()
  await until(10, 'the second list', () => versionOf(0) === '20')
  expect(heard.slice(3)).toEqual(['deleted made@26', 'deleted changed@25', 'added changed@15', 'added deleted@16'])
  expect(informer.state).toBe('synced')
})

test('a server that fell silent is compared with: where it goes on may be a version that it does not have any more', async () => {
  listed = { version: '30', items: [['a', '25']] }
  const clock = new TestClock()
  start(clock)
  await watchesSeen(1)
  await until(5, 'the first object', () => heard.length === 1)
  const plain = server.handle
  server.handle = (request, response) => {
    if (request.query.get('resourceVersionMatch') !== 'Exact') return plain(request, response)
    listed = { version: '20', items: [['a', '15']] }
    const details = { causes: [{ reason: 'ResourceVersionTooLarge' }] }
    reply(response, 504, { code: 504, reason: 'Timeout', message: 'Too large resource version', details })
  }
  await until(10, 'the older state', async () => {
    await clock.advance(10_000)
    return heard.includes('added a@15')
  })
  expect(clock.monotonicMs()).toBeLessThan(10 * 60_000)
  await watchesSeen(2)
  expect(versionOf(1)).toBe('20')
})

describe('the state as the first events of a watch', () => {
  beforeEach(() => {
    streams = true
  })

  test('needs no list', async () => {
    watches.push((response) => {
      response.write(line('ADDED', 'a', '5') + line('ADDED', 'b', '6'))
      response.write(stateEnd('10') + line('MODIFIED', 'a', '11'))
    })
    const informer = start()
    await until(10, 'the change', () => heard.includes('updated a@11'))
    expect(heard).toEqual(['added a@5', 'added b@6', 'updated a@11'])
    expect(informer.state).toBe('synced')
    const { query } = watched[0] ?? expect.unreachable('no watch')
    expect(query.get('sendInitialEvents')).toBe('true')
    expect(query.get('resourceVersionMatch')).toBe('NotOlderThan')
    expect(query.get('allowWatchBookmarks')).toBe('true')
    expect(query.has('resourceVersion')).toBe(false)
    expect(lists()).toEqual([])
  })

  test('is told when it is whole', async () => {
    watches.push((response) => response.write(line('ADDED', 'a', '5')))
    watches.push((response) => response.write(line('ADDED', 'a', '5') + stateEnd('10')))
    const informer = start()
    await watchesSeen(1)
    expect(informer.hasSynced).toBe(false)
    expect(heard).toEqual([])
    // Broken off in the middle, it begins anew.
    server.dropConnections()
    await until(10, 'the object', () => heard.length > 0)
    expect(heard).toEqual(['added a@5'])
    expect(lists()).toEqual([])
  })

  test('is where the next watch goes on, and comes anew after an expiry, told as differences', async () => {
    watches.push((response) => {
      response.end(line('ADDED', 'a', '5') + line('ADDED', 'b', '6') + stateEnd('10'))
    })
    watches.push((response) => {
      response.end(`${JSON.stringify({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } })}\n`)
    })
    watches.push((response) => response.write(line('ADDED', 'b', '12') + stateEnd('20')))
    start()
    await until(10, 'the differences', () => heard.includes('updated b@12'))
    expect(heard).toEqual(['added a@5', 'added b@6', 'deleted a@20', 'updated b@12'])
    expect(versionOf(1)).toBe('10')
    expect(watched[2]?.query.has('resourceVersion')).toBe(false)
  })

  test.each([
    { what: 'refuses it', answer: (r: ServerResponse) => failure(r, 400, 'BadRequest') },
    { what: 'knows no such thing', answer: (r: ServerResponse) => failure(r, 405, 'MethodNotAllowed') },
    {
      what: 'never comes to its end',
      answer: (r: ServerResponse) => r.writeHead(200).write(line('ADDED', 'a', '5')),
    },
    { what: 'never answers', answer: () => undefined },
  ])('is not asked for again where the server $what: lists are', async ({ answer }) => {
    listed = { version: '10', items: [['a', '5']] }
    const plain = server.handle
    let asked = 0
    server.handle = (request, response) => {
      if (!request.query.has('sendInitialEvents')) return plain(request, response)
      asked += 1
      answer(response)
    }
    watches.push((response) => {
      response.end(`${JSON.stringify({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } })}\n`)
    })
    // Only the first silence, in which the state is waited for, is a short one.
    const [first, others] = [fastClock(100), fastClock(FASTER)]
    start({ ...first, sleep: (ms, signal) => (first.slept.length === 0 ? first : others).sleep(ms, signal) })
    await until(20, 'the second list', () => lists().length === 2)
    expect(asked).toBe(1)
    expect(heard).toEqual(['added a@5'])
  })
})
