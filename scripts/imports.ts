/**
 * Holds the house's lines: which folder may import which, one door per dependency, no cycles, no index.ts, no file over 400 lines,
 * time and chance only from `lib`, the environment only in `config.ts`. Run by `npm run check`; prints each breach, exit code 1.
 */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

/** Folder → folders below `src` it may import from besides its own. The longest folder that fits a file counts. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  lib: [],
  template: [],
  schema: ['lib'],
  engine: ['lib', 'schema', 'template', 'engine'],
  'engine/auth/ldap': [
    ...core(),
    'engine/connection',
    'engine/directory',
    'engine/account',
    'engine/password',
    'engine/tenancy',
  ],
  'engine/auth/token': core(),
  'engine/secrets/ldap': [
    ...core(),
    'engine/connection',
    'engine/directory',
    'engine/account',
    'engine/password',
    'engine/ldif',
    'engine/tenancy',
  ],
  'engine/sys': [...core(), 'engine/tenancy'],
  'engine/directory': ['lib'],
  // Commands work on a whole store while no server runs on it.
  'engine/commands': ['lib', 'schema', 'engine'],
  client: ['lib', 'schema', 'engine/request.ts'],
  api: ['lib', 'schema', 'engine/request.ts', 'engine/engine.ts'],
  controller: ['client', 'schema', 'lib', 'template'],
  'controller/runtime': ['lib', 'controller/source/source.ts'],
  cli: ['client', 'schema', 'lib', 'config.ts'],
  processes: ['api', 'cli', 'client', 'config.ts', 'controller', 'engine', 'lib', 'schema'],
}
const ANY = ['main.ts']

/** Package → folders (or files) that may import it. */
const DOORS: Record<string, readonly string[]> = {
  ldapts: ['engine/directory'],
  fastify: ['api'],
  '@peculiar/x509': ['api'],
  '@kubernetes/client-node': ['controller/runtime'],
  undici: ['controller/runtime', 'client'],
  'node:sqlite': ['engine/storage'],
  yaml: ['controller/source', 'cli', 'schema/crd'],
  'node-cron': ['lib/cron.ts'],
  pino: ['lib/log.ts'],
}

const FORBIDDEN: readonly { readonly pattern: RegExp; readonly except: readonly string[]; readonly why: string }[] = [
  { pattern: /\bDate\.now\(\)|\bnew Date\(\)/, except: ['lib'], why: 'time comes from the clock that is passed in' },
  { pattern: /\bMath\.random\(\)/, except: ['lib'], why: 'chance comes from the random that is passed in' },
  { pattern: /\bprocess\.env\b/, except: ['config.ts', 'main.ts'], why: 'only config.ts reads the environment' },
]
const LONGEST_FILE = 400

function core(): string[] {
  const nouns = ['token', 'policy', 'lease', 'identity', 'audit', 'seal', 'storage', 'mount']
  return [
    'lib',
    'schema',
    'template',
    'engine/backend.ts',
    'engine/request.ts',
    ...nouns.map((noun) => `engine/${noun}`),
  ]
}

const root = path.resolve(import.meta.dirname, '../src')
const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
const breaches: string[] = []
const graph = new Map<string, string[]>()

const within = (file: string, places: readonly string[]) => places.some((p) => file === p || file.startsWith(`${p}/`))

for (const file of files) {
  const text = readFileSync(path.join(root, file), 'utf8')
  const isTest = file.endsWith('.test.ts')
  const breach = (why: string) => breaches.push(`src/${file}: ${why}`)
  if (path.basename(file) === 'index.ts') breach('no index.ts')
  if (!isTest && text.split('\n').length > LONGEST_FILE) breach(`longer than ${LONGEST_FILE} lines: change its shape`)
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|[^:])\/\/.*$/gm, '$1')
  if (!isTest) {
    for (const { pattern, except, why } of FORBIDDEN) if (pattern.test(code) && !within(file, except)) breach(why)
  }
  const edges: string[] = []
  for (const [, typeOnly, from, dynamic] of code.matchAll(
    /(?:import|export)\s+(type\s)?[^'"()]*?from\s*'([^']+)'|import\(\s*'([^']+)'\s*\)/g,
  )) {
    const target = from ?? dynamic ?? ''
    if (!target.startsWith('.')) {
      const name = Object.keys(DOORS).find((p) => target === p || target.startsWith(`${p}/`))
      if (name && !isTest && !within(file, DOORS[name] ?? [])) breach(`${name} is only for ${DOORS[name]?.join(', ')}`)
      continue
    }
    const resolved = path.relative(root, path.resolve(root, path.dirname(file), target))
    if (!typeOnly && !dynamic) edges.push(resolved)
    if (resolved.startsWith('..')) {
      if (!isTest && !resolved.startsWith('../package.json')) breach(`imports ${target} from outside src`)
      continue
    }
    if (isTest || ANY.includes(file)) continue
    const folder = Object.keys(MAY_IMPORT)
      .filter((f) => within(file, [f]))
      .sort((a, b) => b.length - a.length)[0]
    if (folder === undefined) {
      if (file.includes('/')) breach('its folder is not in the table of scripts/imports.ts')
      else if (!within(resolved, ['lib'])) breach(`may import only lib, not ${resolved}`)
      continue
    }
    if (!within(resolved, [folder, ...(MAY_IMPORT[folder] ?? [])])) breach(`${folder} may not import ${resolved}`)
    // The core knows no backend: only engine.ts wires them.
    const backends = ['engine/auth', 'engine/secrets', 'engine/sys']
    if (folder === 'engine' && file !== 'engine/engine.ts' && !within(file, backends) && within(resolved, backends))
      breach(`the engine's core may not import the backend file ${resolved}`)
  }
  graph.set(file, edges)
}

const state = new Map<string, 'open' | 'done'>()
function visit(file: string, trail: readonly string[]): void {
  if (state.get(file) === 'done') return
  if (state.get(file) === 'open') {
    breaches.push(`import cycle: ${[...trail.slice(trail.indexOf(file)), file].join(' → ')}`)
    return
  }
  state.set(file, 'open')
  for (const next of graph.get(file) ?? []) visit(next, [...trail, file])
  state.set(file, 'done')
}
for (const file of graph.keys()) visit(file, [])

for (const breach of breaches) console.error(breach)
if (breaches.length > 0) process.exit(1)
console.log(`${files.length} files keep the lines`)
