/**
 * `image-modules.ts TO`: copies the packages that run in production from node_modules to the directory TO, as the lock file marks them: what
 * `npm ci --omit=dev` would install, without a network and without npm in the image. Types and source maps stay behind; nobody reads them there.
 */
import { cpSync, existsSync, readFileSync } from 'node:fs'
import path from 'node:path'

interface Locked {
  readonly dev?: boolean
  readonly optional?: boolean
  readonly version?: string
}

const NEEDLESS = /\.(d\.[cm]?ts|map|md|markdown)$/i

const [to] = process.argv.slice(2)
if (to === undefined) throw new Error('image-modules.ts: the directory to copy to is missing')
const root = path.resolve(import.meta.dirname, '..')
const { packages }: { packages: Record<string, Locked> } = JSON.parse(
  readFileSync(path.join(root, 'package-lock.json'), 'utf8'),
)
const inside = 'node_modules/'
let copied = 0
for (const [place, { dev, optional, version }] of Object.entries(packages)) {
  if (!place.startsWith(inside) || dev) continue
  const from = path.join(root, place)
  if (!existsSync(from)) {
    if (optional) continue
    throw new Error(`${place} is missing: run npm ci`)
  }
  const found = JSON.parse(readFileSync(path.join(from, 'package.json'), 'utf8')).version
  if (found !== version) throw new Error(`${place} is ${found}, but the lock file says ${version}: run npm ci`)
  cpSync(from, path.join(to, place.slice(inside.length)), {
    recursive: true,
    // A package inside a package has its own line in the lock file.
    filter: (file) => file === from || (path.basename(file) !== 'node_modules' && !NEEDLESS.test(file)),
  })
  copied++
}
console.log(`${copied} packages`)
