/** A template that cannot be used; the message says where and why. */
export class TemplateError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'TemplateError'
  }
}

export type Placeholders = (values: Readonly<Record<string, string>>) => string

/**
 * Reads a template of literal text and `{{.Name}}` (spaces inside the braces allowed) with names from `allowed`. Anything else between
 * braces throws `TemplateError`, so that a template never means less than its author thinks. The returned function puts values in.
 */
export function parsePlaceholders(text: string, allowed: readonly string[]): Placeholders {
  const parts: { readonly literal: string; readonly name?: string }[] = []
  let rest = text
  for (let open = rest.indexOf('{{'); open !== -1; open = rest.indexOf('{{')) {
    const close = rest.indexOf('}}', open)
    if (close === -1) throw new TemplateError('"{{" without "}}"')
    const inside = rest.slice(open + 2, close)
    const name = /^\s*\.([A-Za-z]+)\s*$/.exec(inside)?.[1]
    if (name === undefined || !allowed.includes(name)) {
      const fields = allowed.map((field) => `{{.${field}}}`).join(', ')
      throw new TemplateError(`"{{${inside.slice(0, 60)}}}" is not one of ${fields}`)
    }
    parts.push({ literal: rest.slice(0, open), name })
    rest = rest.slice(close + 2)
  }
  parts.push({ literal: rest })
  return (values) =>
    parts.map(({ literal, name }) => (name === undefined ? literal : literal + (values[name] ?? ''))).join('')
}
