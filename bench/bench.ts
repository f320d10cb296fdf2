/**
 * `npm run bench [-- SECTION...]`: what Keyturn does in a second, beside what the directory alone does in the same run on the same machine.
 * Prints a table and, last, one JSON line. Loads are bounded and on loopback; nothing here is asserted but that no password is lost.
 */
import { cpus } from 'node:os'
import { cluster } from './cluster.ts'
import { logins } from './logins.ts'
import { reads } from './reads.ts'
import { Report } from './report.ts'
import { rotations } from './rotations.ts'
import { standalone } from './standalone.ts'
import { startUp } from './start-up.ts'
import { storage } from './storage.ts'

const SECTIONS: Readonly<Record<string, (report: Report) => Promise<void>>> = {
  rotations,
  logins,
  reads,
  'start-up': startUp,
  standalone,
  cluster,
  storage,
}

const chosen = process.argv.slice(2)
const unknown = chosen.find((name) => !(name in SECTIONS))
if (unknown !== undefined) {
  console.error(`there is no section "${unknown}": choose of ${Object.keys(SECTIONS).join(', ')}`)
  process.exit(2)
}
const [cpu] = cpus()
console.log(`Node ${process.version}, ${cpus().length} processors (${cpu?.model ?? 'unknown'})`)
const report = new Report()
for (const [name, section] of Object.entries(SECTIONS)) {
  if (chosen.length > 0 && !chosen.includes(name)) continue
  report.begin(name)
  await section(report)
}
console.log(`\n${report.json()}`)
