import { expect, test } from 'vitest'
import { AppError } from '../../lib/errors.ts'
import { DirectoryError, fromResultCode, isDirectoryError } from './errors.ts'

// code, class of a bind, of a search, of a modify
test.each([
  [1, 'unavailable', 'unavailable', 'unavailable'],
  [2, 'refused', 'refused', 'refused'],
  [3, 'unavailable', 'unavailable', 'unavailable'],
  [8, 'refused', 'refused', 'refused'],
  [10, 'refused', 'refused', 'refused'],
  [13, 'refused', 'refused', 'refused'],
  [19, 'bind-refused', 'rejected', 'rejected'],
  [32, 'bind-refused', 'absent', 'absent'],
  [34, 'bind-refused', 'refused', 'refused'],
  [48, 'bind-refused', 'refused', 'refused'],
  [49, 'bind-refused', 'refused', 'refused'],
  [50, 'bind-refused', 'refused', 'refused'],
  [51, 'unavailable', 'unavailable', 'unavailable'],
  [52, 'unavailable', 'unavailable', 'unavailable'],
  [53, 'bind-refused', 'rejected', 'rejected'],
  [80, 'unavailable', 'unavailable', 'unavailable'],
  [4711, 'refused', 'refused', 'refused'],
] as const)('result code %i', (code, bind, search, modify) => {
  for (const [operation, want] of [
    ['bind', bind],
    ['search', search],
    ['modify', modify],
  ] as const) {
    const error = fromResultCode(code, 'ldap://dc1.example.test', operation)
    expect(error).toMatchObject({ class: want, resultCode: code, server: 'ldap://dc1.example.test' })
    expect(error.message).toContain('dc1.example.test')
    expect(error.message).toContain(String(code))
  }
})

test.each([
  ['bind-refused', 'unavailable'],
  ['unavailable', 'unavailable'],
  ['unknown-outcome', 'unavailable'],
  ['rejected', 'invalid'],
  ['absent', 'invalid'],
  ['refused', 'invalid'],
] as const)('%s is %s to whoever asked', (errorClass, kind) => {
  const error = new DirectoryError(errorClass, 'x')
  expect(error.kind).toBe(kind)
  expect(isDirectoryError(error)).toBe(true)
  expect(isDirectoryError(new AppError(kind, 'x'))).toBe(false)
})
