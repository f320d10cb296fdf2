import { expect, test } from 'vitest'
import { no, passed, type Statement, summarise, unknown, yes } from './conditions.ts'

const TYPES = ['Accepted', 'Synced', 'SecretSynced']
const accepted = yes('Accepted', 'Accepted', 'm')

test.each<{ title: string; stated: Statement[]; ready: string; more?: string }>([
  { title: 'all hold', stated: TYPES.map((type) => yes(type, type, 'm')), ready: 'True Ready' },
  {
    title: 'the first that fails',
    stated: [accepted, no('Synced', 'Gone', 'm')],
    ready: 'False Gone',
    more: 'Reconciling',
  },
  {
    title: 'one that only a person can mend',
    stated: passed(no('Synced', 'Refused', 'm')),
    ready: 'False Refused',
    more: 'Stalled',
  },
  {
    title: 'rights may come by themselves',
    stated: [accepted, yes('Synced', 'Synced', 'm'), no('SecretSynced', 'Forbidden', 'm')],
    ready: 'False Forbidden',
    more: 'Reconciling',
  },
  {
    title: 'a refusal comes before what waits',
    stated: passed(no('Accepted', 'Bad', 'm')),
    ready: 'False Bad',
    more: 'Reconciling',
  },
  { title: 'nothing is known yet', stated: [], ready: 'Unknown Waiting', more: 'Reconciling' },
])('$title: Ready is $ready', ({ stated, ready, more }) => {
  const [first, ...rest] = summarise(TYPES, stated)
  expect(`${first?.status} ${first?.reason}`).toBe(ready)
  expect(rest.map(({ type }) => type)).toEqual([...TYPES, ...(more ? [more] : [])])
})

test('what passed before a failing statement is stated once', () => {
  expect(passed(no('Accepted', 'Bad', 'm'))).toHaveLength(1)
  expect(passed(no('Synced', 'Bad', 'm')).map(({ type, status }) => `${type} ${status}`)).toEqual([
    'Accepted True',
    'Synced False',
  ])
  expect(() => summarise(TYPES, [accepted, no('Accepted', 'Bad', 'm')])).toThrow('twice')
  expect(summarise(TYPES, [accepted])).toContainEqual(unknown('Synced'))
})
