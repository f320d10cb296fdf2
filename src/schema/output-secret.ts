import * as z from 'zod'
import { choice, flag, text } from './fields.ts'
import { objectName } from './references.ts'
import { pinned, type Rule, ruled, textPairs } from './resource.ts'

const OutputSecret = z.object({
  name: objectName().exactOptional().describe("Name of the Secret; the object's own name when absent."),
  type: text(253)
    .min(1)
    .exactOptional()
    .describe('Type of the Secret; Opaque when absent. kubernetes.io/basic-auth fits the default keys.'),
  mode: choice(['Create', 'Merge'])
    .exactOptional()
    .describe('Create (default): made and owned by Keyturn. Merge: must exist, only our keys are written.'),
  template: textPairs(64, { key: 253, value: 16_384 })
    .exactOptional()
    .describe('Further keys, or other values of the default keys username, password and dn.'),
  includePreviousPassword: flag().exactOptional().describe('Adds the key previous_password.'),
  labels: textPairs(64, { key: 317, value: 63 }).exactOptional(),
  annotations: textPairs(64, { key: 317, value: 4096 }).exactOptional(),
  deletionPolicy: choice(['Delete', 'Retain'])
    .exactOptional()
    .describe('What happens to the Secret when this object goes: Delete (default) or Retain.'),
})
type Input = z.input<typeof OutputSecret>

/** The keys that Kubernetes demands of a Secret of these types, besides those that are always there. */
const NEEDS: Readonly<Record<string, readonly string[]>> = {
  'kubernetes.io/tls': ['tls.crt', 'tls.key'],
  'kubernetes.io/ssh-auth': ['ssh-privatekey'],
  'kubernetes.io/dockerconfigjson': ['.dockerconfigjson'],
  'kubernetes.io/dockercfg': ['.dockercfg'],
}
const RESERVED = 'keyturn.dev/'
/** As Kubernetes has them: a Secret with others would be refused at each write. */
const NAME = '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'
const LABEL = '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'

export const outputRules: Rule<Input>[] = [
  ...Object.entries(NEEDS).map(
    ([type, keys]): Rule<Input> => ({
      message: `a Secret of type ${type} needs ${keys.join(' and ')} in its template`,
      cel: `!has(self.type) || self.type != '${type}' || (has(self.template) && ${keys.map((key) => `'${key}' in self.template`).join(' && ')})`,
      check: (output) => output.type !== type || keys.every((key) => Object.hasOwn(output.template ?? {}, key)),
    }),
  ),
  {
    message: 'a Secret of this type belongs to Kubernetes itself',
    cel: "!has(self.type) || !(self.type in ['kubernetes.io/service-account-token', 'bootstrap.kubernetes.io/token'])",
    field: 'type',
    check: ({ type }) => type !== 'kubernetes.io/service-account-token' && type !== 'bootstrap.kubernetes.io/token',
  },
  {
    message: 'keys may hold letters, digits, ".", "_" and "-"',
    cel: "!has(self.template) || self.template.all(key, key.matches('^[-._a-zA-Z0-9]+$'))",
    field: 'template',
    check: ({ template }) => Object.keys(template ?? {}).every((key) => /^[-._a-zA-Z0-9]+$/.test(key)),
  },
  {
    message: 'labels and annotations below keyturn.dev/ are written by Keyturn',
    cel: `(!has(self.labels) || !self.labels.exists(key, key.startsWith('${RESERVED}'))) && (!has(self.annotations) || !self.annotations.exists(key, key.startsWith('${RESERVED}')))`,
    check: ({ labels, annotations }) =>
      ![...Object.keys(labels ?? {}), ...Object.keys(annotations ?? {})].some((key) => key.startsWith(RESERVED)),
  },
  {
    message:
      'labels and annotations must be named as Kubernetes has it: a prefix and a slash at most, then letters, digits, "-", "_" and "."',
    cel: `(!has(self.labels) || self.labels.all(key, key.matches('${NAME}'))) && (!has(self.annotations) || self.annotations.all(key, key.matches('${NAME}')))`,
    check: ({ labels, annotations }) =>
      [...Object.keys(labels ?? {}), ...Object.keys(annotations ?? {})].every((key) => new RegExp(NAME).test(key)),
  },
  {
    message:
      'the value of a label may hold letters, digits, "-", "_" and ".", and begins and ends with a letter or digit',
    cel: `!has(self.labels) || self.labels.all(key, self.labels[key].matches('${LABEL}'))`,
    field: 'labels',
    check: ({ labels }) => Object.values(labels ?? {}).every((value) => new RegExp(LABEL).test(value)),
  },
]

/** The Secret that a credential is written to, in the namespace of its object. */
export const outputSecret = () => ruled(OutputSecret, [...pinned(OutputSecret, ['name', 'type']), ...outputRules])
export type OutputSecret = z.output<typeof OutputSecret>
