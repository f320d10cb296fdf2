/**
 * `npm test` after the checks: unit tests, then real servers, then a real Kubernetes API server. What is missing is installed or built where
 * that is possible; what cannot be had is left out loudly, and fails with CI=true. `--only unit|servers|e2e` runs one part; other arguments go
 * to vitest. The last line is "N passed, N failed".
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { buildCluster, clusterAvailable } from '../test/support/cluster.ts'

interface Part {
  readonly name: 'unit' | 'servers' | 'e2e'
  readonly packages: readonly string[]
  /** Debian packages of some of its tests, which say themselves when they are missing. */
  readonly also?: readonly string[]
  /** What else it needs; a text says why it cannot be had. */
  readonly prepare?: () => string | undefined
  /** Which of its files run at the same time as the others, in a process with servers of its own. */
  readonly beside?: { readonly directory: string; readonly files: readonly string[] }
}

const PARTS: readonly Part[] = [
  { name: 'unit', packages: [] },
  { name: 'servers', packages: ['slapd', 'ldap-utils', 'openssl', 'python3-venv'] },
  {
    name: 'e2e',
    packages: ['slapd', 'ldap-utils', 'openssl'],
    also: ['buildah', 'debootstrap'],
    prepare: prepareCluster,
    // They mostly wait, and the others are not to wait for them.
    beside: {
      directory: 'test/e2e',
      files: ['chart.test.ts', 'image.test.ts', 'operator-quiet.test.ts', 'runtime-outage.test.ts'],
    },
  },
]

function prepareCluster(): string | undefined {
  if (!clusterAvailable())
    return 'a Kubernetes control plane needs Go to be built once (and setpriv), and neither is here'
  buildCluster()
  return undefined
}

const { values, positionals } = parseArgs({
  options: { only: { type: 'string' } },
  allowPositionals: true,
})
const inCi = process.env['CI'] === 'true'
const root = path.resolve(import.meta.dirname, '..')
const work = mkdtempSync(path.join(tmpdir(), 'keyturn-test-'))
const total = { passed: 0, failed: 0 }
let broken = false

for (const part of PARTS) {
  if (values.only !== undefined && values.only !== part.name) continue
  const missing = missingFor(part)
  if (missing !== undefined) {
    console.error(`\n*** LEFT OUT: the tests "${part.name}": ${missing} ***\n`)
    if (inCi) broken = true
    continue
  }
  console.log(`\n== ${part.name}`)
  const runs = positionals.length > 0 ? [positionals] : runsOf(part)
  const ended = await Promise.all(runs.map((files, at) => run(part.name, at, files)))
  for (const { counts, failed, output } of ended) {
    if (output !== '') console.log(output)
    total.passed += counts.passed
    total.failed += counts.failed
    if (failed) broken = true
    if (failed && counts.failed === 0) total.failed += 1
  }
}
rmSync(work, { recursive: true, force: true })
if (total.passed === 0) broken = true
console.log(`\n${total.passed} passed, ${total.failed} failed`)
process.exitCode = broken ? 1 : 0

/** What is given to vitest: one run of everything, or one of what runs beside the others and one of those. */
function runsOf({ beside }: Part): string[][] {
  if (!beside) return [[]]
  const files = readdirSync(path.join(root, beside.directory)).filter((name) => name.endsWith('.test.ts'))
  const pathOf = (name: string) => path.join(beside.directory, name)
  return [files.filter((name) => !beside.files.includes(name)), beside.files].map((group) => group.map(pathOf))
}

/** Runs a part's tests, or some of them; of all but the first run the output is kept, so that two do not mix. */
async function run(name: string, at: number, args: readonly string[]) {
  const report = path.join(work, `${name}-${at}.json`)
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const child = spawn(path.join(root, 'node_modules/.bin/vitest'), ['run', '--project', name, ...reporters, ...args], {
    cwd: root,
    stdio: at === 0 ? 'inherit' : ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', (text) => (output += text))
  const [code] = await once(child, 'close')
  return { counts: countsOf(report), failed: code !== 0, output }
}

function missingFor(part: Part): string | undefined {
  if (part.packages.length > 0) {
    const install = spawnSync('sh', [path.join(root, 'scripts/packages.sh'), ...part.packages], { encoding: 'utf8' })
    if (install.status !== 0) return install.stderr.trim()
  }
  if (part.also) spawnSync('sh', [path.join(root, 'scripts/packages.sh'), ...part.also], { stdio: 'inherit' })
  return part.prepare?.()
}

function countsOf(report: string): { passed: number; failed: number } {
  try {
    const { numPassedTests, numFailedTests } = JSON.parse(readFileSync(report, 'utf8'))
    return { passed: numPassedTests, failed: numFailedTests }
  } catch {
    return { passed: 0, failed: 0 }
  }
}
