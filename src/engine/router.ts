import type { Backend, Mount, Route } from './backend.ts'

/** Where a request goes: the mount, and the first of its backend's routes that matches; matching does not continue past it. */
export interface Place {
  readonly mount: Mount
  readonly backend: Backend
  /** Path inside the mount. */
  readonly rest: string
  readonly match?: { readonly route: Route; readonly params: Readonly<Record<string, string>> }
}

type Matcher = (path: string) => Record<string, string> | undefined

const matchers = new WeakMap<Route, Matcher>()

/** Finds the route of a path inside a mount. */
export function findRoute(backend: Backend, rest: string): Place['match'] {
  for (const route of backend.routes) {
    const matcher = matchers.get(route) ?? compile(route.pattern)
    matchers.set(route, matcher)
    const params = matcher(rest)
    if (params) return { route, params }
  }
  return undefined
}

/** `config`, `groups/:name+`, `static-role/:name*`: a colon captures one segment, with `+` one or more, with `*` none or more. */
function compile(pattern: string): Matcher {
  const names: string[] = []
  let source = ''
  for (const segment of pattern.split('/')) {
    const capture = /^:(\w+)([+*]?)$/.exec(segment)
    const slash = source === '' ? '' : '/'
    if (!capture) {
      source += slash + segment.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
      continue
    }
    names.push(capture[1] ?? '')
    if (capture[2] === '*') source += source === '' ? '(.*)' : '(?:/(.*))?'
    else source += `${slash}(${capture[2] === '+' ? '.+' : '[^/]+'})`
  }
  const regex = new RegExp(`^${source}$`, 's')
  return (path) => {
    const found = regex.exec(path)
    return found ? Object.fromEntries(names.map((name, i) => [name, found[i + 1] ?? ''])) : undefined
  }
}
