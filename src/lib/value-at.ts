/** What stands at a path of a value of unknown shape; `undefined` where there is nothing. */
export function valueAt(value: unknown, ...path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((at, name) => (at instanceof Object ? Reflect.get(at, name) : undefined), value)
}
