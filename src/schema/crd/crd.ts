import { GROUP, type Kind, VERSION } from '../resource.ts'
import { type StructuralSchema, structural } from './structural.ts'

/** The CustomResourceDefinition of a kind, as an object ready to be written as YAML. */
export function crd(kind: Kind): StructuralSchema {
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${kind.plural}.${GROUP}` },
    spec: {
      group: GROUP,
      scope: kind.scope,
      names: {
        kind: kind.kind,
        listKind: `${kind.kind}List`,
        plural: kind.plural,
        singular: kind.kind.toLowerCase(),
        shortNames: [kind.shortName],
        categories: ['keyturn'],
      },
      versions: [
        {
          name: VERSION,
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: columns(kind),
          ...(kind.selectableFields && {
            selectableFields: kind.selectableFields.map((jsonPath) => ({ jsonPath })),
          }),
          schema: { openAPIV3Schema: root(kind) },
        },
      ],
    },
  }
}

function root(kind: Kind): StructuralSchema {
  return {
    type: 'object',
    description: kind.description,
    required: ['spec'],
    properties: {
      apiVersion: { type: 'string' },
      kind: { type: 'string' },
      metadata: { type: 'object' },
      spec: structural(kind.spec, 'spec'),
      status: structural(kind.status, 'status'),
    },
    ...(kind.reservedNames && {
      'x-kubernetes-validations': [
        {
          rule: `!(self.metadata.name in [${kind.reservedNames.map((name) => `'${name}'`).join(', ')}])`,
          message: `the names ${kind.reservedNames.join(' and ')} are taken`,
        },
      ],
    }),
  }
}

function columns(kind: Kind): StructuralSchema[] {
  const condition = (field: string) => `.status.conditions[?(@.type=="Ready")].${field}`
  return [
    { name: 'Ready', type: 'string', jsonPath: condition('status') },
    { name: 'Reason', type: 'string', jsonPath: condition('reason') },
    ...kind.columns.map(({ name, path, type = 'string', priority, description }) => ({
      name,
      type,
      jsonPath: path,
      ...(priority && { priority }),
      ...(description && { description }),
    })),
    { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
  ]
}
