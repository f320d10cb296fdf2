import { expect, test } from 'vitest'
import { type Backend, route } from './backend.ts'
import { findRoute } from './router.ts'

const backend: Backend = {
  type: 'test',
  routes: [
    'library/:set+/status',
    'config',
    'static-role/:name*',
    'library/:set+',
    'one/:a/two/:b',
    'dots.and+plus',
  ].map((pattern) => route({ pattern })),
}

test.each([
  ['config', 'config', {}],
  ['library/a/b/status', 'library/:set+/status', { set: 'a/b' }],
  ['library/a/b', 'library/:set+', { set: 'a/b' }],
  ['static-role', 'static-role/:name*', { name: '' }],
  ['static-role/', 'static-role/:name*', { name: '' }],
  ['static-role/team/app', 'static-role/:name*', { name: 'team/app' }],
  ['one/x/two/y', 'one/:a/two/:b', { a: 'x', b: 'y' }],
  ['dots.and+plus', 'dots.and+plus', {}],
])('%s goes to %s', (path, pattern, params) => {
  const match = findRoute(backend, path)
  expect(match?.route.pattern).toBe(pattern)
  expect(match?.params).toEqual(params)
})

test.each(['configs', 'config/x', 'library', 'static-rolex', 'one/x/two', 'one/x/y/two/z', 'dotsXand+plus', ''])(
  '%j goes nowhere',
  (path) => expect(findRoute(backend, path)).toBeUndefined(),
)
