import { expect, test } from 'vitest'
import { parseManifests } from './manifests.ts'

test.each([
  [
    'kind: Secret\nstringData:\n  password: secret\n  password: secret\n',
    /^not YAML: DUPLICATE_KEY at line 4, column 3$/,
  ],
  ['apiVersion: v1\nkind: Secret\n', /^a document lacks apiVersion, kind or metadata$/],
  [
    'apiVersion: keyturn.dev/v1alpha1\nkind: Nothing\nmetadata: {name: a}\n',
    /^keyturn\.dev\/v1alpha1 has no kind Nothing$/,
  ],
])('what is wrong with a file is told, without its text: %j', (text, message) => {
  expect(() => parseManifests('a.yaml', text)).toThrow(message)
})
