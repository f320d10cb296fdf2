/**
 * `npm test` after the checks: unit tests, then real servers, then a real Kubernetes API server. What is missing is installed or built where
 * that is possible; what cannot be had is left out loudly, and fails with CI=true. `--only unit|servers|e2e` runs one part; other arguments go
 * to vitest. The last line is "N passed, N failed".
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
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
}

const PARTS: readonly Part[] = [
  { name: 'unit', packages: [] },
  { name: 'servers', packages: ['slapd', 'ldap-utils', 'openssl', 'python3-venv'] },
  {
    name: 'e2e',
    packages: ['slapd', 'ldap-utils', 'openssl'],
    also: ['buildah', 'debootstrap'],
    prepare: prepareCluster,
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
  const report = path.join(work, `${part.name}.json`)
  const args = ['run', '--project', part.name, '--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  const run = spawnSync(path.join(root, 'node_modules/.bin/vitest'), [...args, ...positionals], {
    cwd: root,
    stdio: 'inherit',
  })
  const counts = countsOf(report)
  total.passed += counts.passed
  total.failed += counts.failed
  if (run.status !== 0) broken = true
  if (run.status !== 0 && counts.failed === 0) total.failed += 1
}
rmSync(work, { recursive: true, force: true })
if (total.passed === 0) broken = true
console.log(`\n${total.passed} passed, ${total.failed} failed`)
process.exitCode = broken ? 1 : 0

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
