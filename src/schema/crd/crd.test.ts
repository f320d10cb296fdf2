import { expect, test } from 'vitest'
import * as z from 'zod'
import { duration, flag, integer, text } from '../fields.ts'
import { KINDS } from '../kinds.ts'
import { list, ruled, set } from '../resource.ts'
import { crd } from './crd.ts'
import { structural } from './structural.ts'

test('a schema becomes structural, with limits, rules and descriptions', () => {
  const schema = ruled(
    z.object({
      name: text(10)
        .min(2)
        .regex(/^a\/b$/)
        .describe('A name.'),
      on: flag().exactOptional(),
      size: integer({ min: 1, max: 9 }).exactOptional(),
      period: duration({ minMs: 5000 }),
      tags: set(text(3), { min: 1, max: 4 }),
    }),
    [{ message: 'no', cel: 'self.on', field: 'on', check: () => true }],
  )
  expect(structural(schema, 'spec')).toEqual({
    type: 'object',
    required: ['name', 'period', 'tags'],
    properties: {
      name: { type: 'string', minLength: 2, maxLength: 10, pattern: '^a/b$', description: 'A name.' },
      on: { type: 'boolean' },
      size: { type: 'integer', format: 'int64', minimum: 1, maximum: 9 },
      period: {
        type: 'string',
        maxLength: 40,
        pattern: expect.any(String),
        'x-kubernetes-validations': [{ rule: expect.stringContaining('>= 5'), message: 'must be at least 5 seconds' }],
      },
      tags: {
        type: 'array',
        minItems: 1,
        maxItems: 4,
        'x-kubernetes-list-type': 'set',
        items: { type: 'string', maxLength: 3 },
      },
    },
    'x-kubernetes-validations': [{ rule: 'self.on', message: 'no', fieldPath: '.on' }],
  })
})

test.each([
  ['a union', z.union([z.string(), z.number()])],
  ['a text without maximum', z.string()],
  ['a list without maximum', z.array(text(3))],
  ['a map without maximum', z.record(z.string(), text(3))],
  ['a fraction', z.number().min(0).max(1)],
  ['a lookahead', text(9).regex(/^(?!x)/)],
  ['a back reference', text(9).regex(/^(a)\1$/)],
  ['a flag of a pattern', text(9).regex(/^a$/i)],
  ['a transformation', text(9).transform((value) => value.length)],
  ['a refinement', z.object({ a: text(1) }).refine(() => true)],
  ['anything', z.unknown()],
  ['null', z.null()],
  ['one deep inside', list(z.object({ a: z.any() }), { max: 1 })],
])('refuses %s', (_, schema) => {
  expect(() => structural(schema, 'spec.field')).toThrow('spec.field')
})

test.each(KINDS.map((kind) => [kind.kind, kind] as const))('%s has what every kind has', (_, kind) => {
  const made = JSON.stringify(crd(kind))
  expect(made).toContain('"categories":["keyturn"]')
  expect(made).toContain('"subresources":{"status":{}}')
  expect(made).toContain('"x-kubernetes-list-map-keys":["type"]')
  expect(made).not.toContain('"default":')
})
