import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { crd } from '../src/schema/crd/crd.ts'
import { KINDS } from '../src/schema/kinds.ts'
import { GROUP } from '../src/schema/resource.ts'

/*
 * Writes crds/*.yaml from the schemas. `--check` writes nothing and fails when a file differs.
 */

const root = join(import.meta.dirname, '..')
const checking = process.argv.includes('--check')
const wanted = new Map(
  KINDS.map((kind) => [
    `${GROUP}_${kind.plural}.yaml`,
    `# Made from src/schema by "npm run crds". Do not edit.\n${stringify(crd(kind), { lineWidth: 0, aliasDuplicateObjects: false })}`,
  ]),
)

const inChart = new Map([...wanted].map(([name, text]) => [name, chartTemplate(text)]))

const different: string[] = []
await bring('crds', wanted)
await bring('charts/keyturn/templates/crds', inChart)

if (different.length === 0) console.log(`crds: ${wanted.size} files are up to date`)
else if (checking) {
  console.error(`crds: out of date: ${different.join(', ')}; run "npm run crds"`)
  process.exitCode = 1
} else console.log(`crds: wrote ${different.join(', ')}`)

/** Makes a folder hold these files and no other YAML. */
async function bring(folder: string, files: ReadonlyMap<string, string>): Promise<void> {
  await mkdir(join(root, folder), { recursive: true })
  const present = (await readdir(join(root, folder))).filter((name) => name.endsWith('.yaml'))
  for (const [name, text] of files) {
    const file = join(root, folder, name)
    const old = present.includes(name) ? await readFile(file, 'utf8') : undefined
    if (old === text) continue
    different.push(join(folder, name))
    if (!checking) await writeFile(file, text)
  }
  for (const name of present.filter((name) => !files.has(name))) {
    different.push(join(folder, name))
    if (!checking) await rm(join(root, folder, name))
  }
}

/** The same as a template of the chart: may be left out, stays when the release goes. Braces of its own are no template. */
function chartTemplate(text: string): string {
  const escaped = text.replaceAll('{{', '{{ "{{" }}')
  const labels = '  labels:\n    {{- include "keyturn.labels" . | nindent 4 }}\n'
  const annotations = '  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n'
  const named = escaped.replace(/^metadata:\n {2}name: .*\n/m, (metadata) => metadata + labels + annotations)
  return `{{- if .Values.crds.enabled }}\n${named}{{- end }}\n`
}
