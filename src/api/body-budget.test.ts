import { EventEmitter } from 'node:events'
import { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import { expect, test } from 'vitest'
import { BodyBudget } from './body-budget.ts'

const KB = 1024

function watched(budget: BodyBudget) {
  const socket = new Socket()
  const request = new IncomingMessage(socket)
  request.headers = { 'transfer-encoding': 'chunked' }
  const response = new EventEmitter()
  budget.watch(request, response)
  return {
    sends: (kilobytes: number) => request.push(Buffer.alloc(kilobytes * KB)),
    isOver: () => socket.destroyed,
    answered: () => void response.emit('close'),
  }
}

test('of bodies that come in one turn of the event loop, one that is refused makes room for the next', () => {
  // A quarter is for the beginnings of bodies: 768 KB for the rest.
  const budget = new BodyBudget(1024 * KB)
  const [one, other] = [watched(budget), watched(budget)]
  one.sends(400)
  other.sends(400)
  one.sends(200)
  other.sends(200)
  expect([one.isOver(), other.isOver()]).toEqual([true, false])
  // Nothing of it counts any more, whatever still comes.
  one.sends(400)
  other.sends(200)
  expect(other.isOver()).toBe(false)
})

test('what is refused is given back once, though its connection ends later', () => {
  const budget = new BodyBudget(1024 * KB)
  const first = watched(budget)
  first.sends(700)
  first.sends(300)
  expect(first.isOver()).toBe(true)
  first.answered()
  // 64 KB of a body are its beginning, and 768 KB are for the rest.
  const [one, other] = [watched(budget), watched(budget)]
  one.sends(800)
  other.sends(129)
  expect([one.isOver(), other.isOver()]).toEqual([false, true])
})

test('what is answered is given back', () => {
  const budget = new BodyBudget(1024 * KB)
  const first = watched(budget)
  first.sends(800)
  first.answered()
  const next = watched(budget)
  next.sends(800)
  expect(next.isOver()).toBe(false)
})
