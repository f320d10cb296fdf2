/** Orders strings by their UTF-8 octets, as SQLite and PostgreSQL ("C") do; JavaScript's own order differs beyond U+FFFF. */
export function compareKeys(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  for (let i = 0; i < length; i++) {
    const x = a.charCodeAt(i)
    const y = b.charCodeAt(i)
    // UTF-16 puts surrogates (code points above U+FFFF) before U+E000..U+FFFF; octets put them after.
    if (x !== y) return rank(x) - rank(y)
  }
  return a.length - b.length
}

function rank(unit: number): number {
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}
