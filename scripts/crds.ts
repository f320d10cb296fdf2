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

const folder = join(root, 'crds')
await mkdir(folder, { recursive: true })
const present = (await readdir(folder)).filter((name) => name.endsWith('.yaml'))
const different: string[] = []
for (const [name, text] of wanted) {
  const old = present.includes(name) ? await readFile(join(folder, name), 'utf8') : undefined
  if (old === text) continue
  different.push(name)
  if (!checking) await writeFile(join(folder, name), text)
}
for (const name of present.filter((name) => !wanted.has(name))) {
  different.push(name)
  if (!checking) await rm(join(folder, name))
}

if (different.length === 0) console.log(`crds: ${wanted.size} files are up to date`)
else if (checking) {
  console.error(`crds: out of date: ${different.join(', ')}; run "npm run crds"`)
  process.exitCode = 1
} else console.log(`crds: wrote ${different.join(', ')}`)
