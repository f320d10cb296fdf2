import { isObject, type Json, type JsonObject } from '../schema/answer-json.ts'

/** Something that happened in the engine, as its feed tells it. */
export interface FeedEvent {
  readonly number: number
  readonly time: string
  readonly type: string
  readonly mount: string
  readonly path: string
  /** Empty when the object has no owner. */
  readonly owner: string
  readonly data: JsonObject
}

/** An event; or that events before `resumeAfter` are no longer kept, so that whoever follows must list everything anew. */
export type Followed =
  | { readonly kind: 'event'; readonly event: FeedEvent }
  | { readonly kind: 'gap'; readonly resumeAfter: number }

/** Reads the payload of what `sys/events` answered when asked for what came after event `after`. */
export function followedOf(data: JsonObject, after: number): Followed[] {
  const last = numberOf(data['last'])
  // Listing anew covers all up to here, whatever events came along. A feed that ends before `after` is that of a restored store.
  if (data['gap'] === true || last < after) return [{ kind: 'gap', resumeAfter: last }]
  const events = data['events']
  return Array.isArray(events) ? events.filter(isObject).map((event) => ({ kind: 'event', event: eventOf(event) })) : []
}

function eventOf(event: JsonObject): FeedEvent {
  const { number, time, type, mount, path, owner, data } = event
  return {
    number: numberOf(number),
    time: textOf(time),
    type: textOf(type),
    mount: textOf(mount),
    path: textOf(path),
    owner: textOf(owner),
    data: isObject(data) ? data : {},
  }
}

function numberOf(value: Json | undefined): number {
  if (typeof value !== 'number') throw new Error('the event feed answered without numbers')
  return value
}

function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : ''
}
