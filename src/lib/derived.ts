/** Remembers what was computed from an object for as long as the object lives. The object must not change. */
export function derived<K extends object, V>(compute: (from: K) => V): (from: K) => V {
  const known = new WeakMap<K, { readonly value: V }>()
  return (from) => {
    const found = known.get(from)
    if (found) return found.value
    const value = compute(from)
    known.set(from, { value })
    return value
  }
}
