import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import { type Cluster, HELM } from './cluster.ts'

/** The chart, rendered and installed by the real helm (built beside the cluster's components, see `buildCluster`). */

export const CHART = join(import.meta.dirname, '../../charts/keyturn')

export type Values = { readonly [name: string]: unknown }

/** An object as the chart renders it. */
// biome-ignore lint/suspicious/noExplicitAny: tests read arbitrary objects
export type Rendered = any

/** Values without which the chart refuses to render. */
export const LEAST: Values = { seal: { existingSecret: 'keyturn-seal' } }

export interface HelmResult {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs helm; values go in by stdin (`--values -`). Never throws on an exit code. */
export function helm(args: readonly string[], values?: Values, cluster?: Pick<Cluster, 'kubeconfig'>): HelmResult {
  const input = values === undefined ? '' : JSON.stringify(values)
  const given = values === undefined ? args : [...args, '--values', '-']
  const env = { ...process.env, ...(cluster && { KUBECONFIG: cluster.kubeconfig }) }
  const { status, stdout, stderr, error } = spawnSync(HELM, given, { input, env, encoding: 'utf8' })
  if (error) throw error
  return { status, stdout, stderr }
}

/** The objects that the chart renders, parsed; `values` come on top of the least ones. Throws what helm said when it refuses. */
export function renderChart(
  values: Values = {},
  { release = 'keyturn', namespace = 'keyturn-system' }: { release?: string; namespace?: string } = {},
): Rendered[] {
  const run = helm(['template', release, CHART, '--namespace', namespace], { ...LEAST, ...values })
  if (run.status !== 0) throw new Error(run.stderr)
  return parseAllDocuments(run.stdout).flatMap((document) => {
    if (document.errors.length > 0) throw document.errors[0]
    const object = document.toJS()
    return object ? [object] : []
  })
}

/** The one rendered object of that kind and, where there are several, that name. */
export function requireRendered(objects: readonly Rendered[], kind: string, name?: string): Rendered {
  const found = objects.filter((o) => o.kind === kind && (name === undefined || o.metadata.name === name))
  if (found.length !== 1) throw new Error(`${found.length} objects ${kind} ${name ?? ''} instead of one`)
  return found[0]
}
