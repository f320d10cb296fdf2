import { homedir } from 'node:os'
import { parseArgs } from 'node:util'
import { invalid, messageOf } from './lib/errors.ts'

/**
 * The only reader of the environment. Every flag has a variable of the same name (`--seal-key` is `KEYTURN_SEAL_KEY`); the flag wins.
 */
export type Environment = Readonly<Record<string, string | undefined>>

export interface ServerConfig {
  readonly dataDir: string
  readonly listen: readonly { readonly host: string; readonly port: number }[]
  readonly socket: string | undefined
  readonly sealKeyFile: string
  readonly tls: { readonly certFile: string; readonly keyFile: string } | undefined
  /** More names for the certificate of our own CA. */
  readonly tlsNames: readonly string[]
  readonly plainHttp: boolean
  readonly auditLog: string
  readonly trustedProxies: readonly string[]
  readonly proxyProtocol: boolean
  readonly controllerTokenFile: string | undefined
  readonly logLevel: string
}

export interface ControllerConfig {
  readonly socket: string
  readonly controllerTokenFile: string
  readonly namespace: string
  readonly kubeconfig: string | undefined
  /** The API server as the kubelet names it in a pod's environment. */
  readonly inCluster: { readonly host: string; readonly port: string } | undefined
  readonly identity: string
  readonly manifestsDir: string | undefined
  readonly secretsDir: string | undefined
  /** Namespaces whose Secrets may be touched; empty: all. */
  readonly secretNamespaces: readonly string[]
  /** Kinds to work on; empty: all. */
  readonly controllers: readonly string[]
  readonly healthPort: number
  readonly logLevel: string
}

export interface DevConfig {
  readonly server: ServerConfig
  readonly manifestsDir: string
  readonly secretsDir: string
}

/** What the command line client takes from its surroundings; flags win over all of it. */
export interface CliConfig {
  readonly address: string
  readonly token: string | undefined
  readonly caCertFile: string | undefined
  readonly insecure: boolean
  /** Where `login` leaves the token. */
  readonly tokenFile: string
  readonly ldapPassword: string | undefined
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']

/** What a flag takes (nothing: it is a switch), what it is for, and its value when it is not given. */
export interface Flag {
  readonly type: 'string' | 'boolean'
  readonly takes?: string
  readonly about: string
  readonly default?: string | boolean
}
export type FlagTable = Readonly<Record<string, Flag>>

const text = (takes: string, about: string, fallback?: string): Flag => ({
  type: 'string',
  takes,
  about,
  ...(fallback !== undefined && { default: fallback }),
})
const toggle = (about: string): Flag => ({ type: 'boolean', about, default: false })

const LOG_LEVEL = text('LEVEL', LOG_LEVELS.join(', '), 'info')

export const SERVER_FLAGS: FlagTable = {
  data: text('DIR', 'the store, and what belongs to it', './keyturn-data'),
  listen: text('HOST:PORT,…', 'where the API listens, over TLS', '127.0.0.1:8200'),
  socket: text('PATH', 'a unix socket, for the controller and for this machine'),
  'seal-key': text('FILE', 'the key that seals the store; made with a new store (DATA/seal-key)'),
  'tls-cert': text('FILE', 'certificate of the API, with its chain; else one of a CA made in DATA/tls'),
  'tls-key': text('FILE', 'its private key'),
  'tls-names': text('NAME,…', 'more names for the certificate of our own CA', ''),
  'plain-http': toggle('listen without TLS'),
  'audit-log': text('FILE', 'where audit records go; "-" is standard output, "off" nowhere (DATA/audit.log)'),
  'trusted-proxies': text('NETWORK,…', 'whose X-Forwarded-For is believed, such as 10.0.0.0/8', ''),
  'proxy-protocol': toggle('trusted proxies speak the PROXY protocol'),
  'controller-token': text('FILE', 'where to leave the token for a controller beside this server'),
  'log-level': LOG_LEVEL,
}

export const CONTROLLER_FLAGS: FlagTable = {
  socket: text('PATH', 'the unix socket of the server', '/run/keyturn/keyturn.sock'),
  'controller-token': text('FILE', 'the token that the server left', '/run/keyturn/controller-token'),
  namespace: text('NAME', 'where Secrets and CA bundles of cluster-scoped resources are', 'keyturn-system'),
  kubeconfig: text('FILE', 'the cluster (KUBECONFIG, else in a pod its own, else ~/.kube/config)'),
  identity: text('NAME', 'name of this process in the Lease (the host name); a random suffix is added', ''),
  manifests: text('DIR', 'resources from a directory in place of a cluster'),
  secrets: text('DIR', 'Secrets as files, with --manifests'),
  'secret-namespaces': text('NAME,…', 'namespaces whose Secrets may be touched; empty: all', ''),
  controllers: text('KIND,…', 'kinds to work on; empty: all', ''),
  'health-port': text('PORT', '/readyz and /livez; 0: none', '0'),
  'log-level': LOG_LEVEL,
}

export const DEV_FLAGS: FlagTable = {
  manifests: text('DIR', 'resources to follow; required'),
  secrets: text('DIR', 'where Secrets become files NAMESPACE/NAME/KEY; required'),
  ...SERVER_FLAGS,
}

const STORE_FLAGS: FlagTable = {
  data: text('DIR', 'where the store is to be; required'),
  'seal-key': text('FILE', 'the seal key of the store that was backed up (DATA/seal-key)'),
}

export const RESTORE_FLAGS: FlagTable = {
  ...STORE_FLAGS,
  'bind-password': text(
    '[MOUNT=]FILE',
    'what a mount (ldap/) binds with now; "-" is standard input; may come again; no variable',
  ),
}

export function serverConfig(args: readonly string[], env: Environment): ServerConfig {
  return freeze(serverFrom(read(args, SERVER_FLAGS, env)))
}

export function controllerConfig(args: readonly string[], env: Environment): ControllerConfig {
  const flags = read(args, CONTROLLER_FLAGS, env)
  const manifestsDir = textOf(flags, 'manifests')
  const secretsDir = textOf(flags, 'secrets')
  if ((manifestsDir === undefined) !== (secretsDir === undefined))
    throw invalid('--manifests and --secrets go together: where resources are read and where their Secrets are written')
  const [host, port] = [env['KUBERNETES_SERVICE_HOST'], env['KUBERNETES_SERVICE_PORT']]
  return freeze({
    socket: requireText(flags, 'socket'),
    controllerTokenFile: requireText(flags, 'controller-token'),
    namespace: requireText(flags, 'namespace'),
    kubeconfig: textOf(flags, 'kubeconfig') ?? (env['KUBECONFIG'] || undefined),
    inCluster: host !== undefined && port !== undefined ? { host, port } : undefined,
    identity: textOf(flags, 'identity') ?? '',
    manifestsDir,
    secretsDir,
    secretNamespaces: listOf(textOf(flags, 'secret-namespaces') ?? ''),
    controllers: listOf(textOf(flags, 'controllers') ?? ''),
    healthPort: portOf(requireText(flags, 'health-port'), '--health-port'),
    logLevel: levelOf(flags),
  })
}

export function devConfig(args: readonly string[], env: Environment): DevConfig {
  const flags = read(args, DEV_FLAGS, env)
  const manifestsDir = textOf(flags, 'manifests')
  const secretsDir = textOf(flags, 'secrets')
  if (manifestsDir === undefined) throw invalid('--manifests DIR is required: the directory of resources to follow')
  if (secretsDir === undefined) throw invalid('--secrets DIR is required: where the Secrets become files')
  return freeze({ server: serverFrom(flags), manifestsDir, secretsDir })
}

export interface RestoreConfig {
  readonly file: string
  readonly data: string
  readonly sealKeyFile: string
  /** Files with the password that a mount binds with now; `-` is standard input. Mount paths end with a slash. */
  readonly bindPasswords: readonly { readonly mount: string; readonly file: string }[]
}

export function restoreConfig(args: readonly string[], env: Environment): RestoreConfig {
  const [file, ...rest] = args
  if (file === undefined || file.startsWith('-'))
    throw invalid('the backup is missing: keyturn restore FILE --data DIR [--seal-key FILE]')
  const { left, values } = takeRepeated(rest, '--bind-password')
  const flags = read(left, STORE_FLAGS, env)
  const data = textOf(flags, 'data')
  if (data === undefined) throw invalid('--data DIR is required: where the store is to be')
  const bindPasswords = values.map(bindPasswordOf)
  const twice = bindPasswords.find(({ mount }, at) => bindPasswords.findIndex((other) => other.mount === mount) < at)
  if (twice) throw invalid(`--bind-password is given twice for the mount ${twice.mount}`)
  return freeze({ file, data, sealKeyFile: textOf(flags, 'seal-key') ?? `${data}/seal-key`, bindPasswords })
}

/** `[MOUNT=]FILE`; a file whose name holds "=" is given with its mount. */
function bindPasswordOf(text: string): { mount: string; file: string } {
  const equals = text.indexOf('=')
  const mount = equals < 0 ? 'ldap' : text.slice(0, equals).replace(/^\/+|\/+$/g, '')
  const file = text.slice(equals + 1)
  if (mount === '' || file === '') throw invalid('--bind-password must be FILE or MOUNT=FILE')
  return { mount: `${mount}/`, file }
}

/** Takes a flag that may be given several times out of the arguments. */
function takeRepeated(args: readonly string[], flag: string): { left: string[]; values: string[] } {
  const left: string[] = []
  const values: string[] = []
  for (let at = 0; at < args.length; at++) {
    const arg = args[at] ?? ''
    if (arg.startsWith(`${flag}=`)) values.push(arg.slice(flag.length + 1))
    else if (arg === flag) values.push(args[++at] ?? '')
    else left.push(arg)
  }
  return { left, values }
}

export function cliConfig(env: Environment): CliConfig {
  // The specification's name first, then those that people already have in their scripts.
  const passwords = [env['SERVICE_LDAP_PASSWORD'], env['VAULT_LDAP_PASSWORD'], env['BAO_LDAP_PASSWORD']]
  return freeze({
    address: env['KEYTURN_ADDR'] || 'https://127.0.0.1:8200',
    token: env['KEYTURN_TOKEN'] || undefined,
    caCertFile: env['KEYTURN_CACERT'] || undefined,
    insecure: switchOf(env['KEYTURN_INSECURE'] || 'false', 'KEYTURN_INSECURE'),
    tokenFile: `${env['HOME'] || homedir()}/.keyturn-token`,
    ldapPassword: passwords.find((password) => password !== undefined && password !== ''),
  })
}

type Flags = Readonly<Record<string, string | boolean | undefined>>

function read(args: readonly string[], known: FlagTable, env: Environment): Flags {
  const options = Object.fromEntries(Object.entries(known).map(([name, { type }]) => [name, { type }]))
  let given: Flags
  try {
    given = parseArgs({ args: [...args], options, strict: true, allowPositionals: false }).values
  } catch (error) {
    throw invalid(messageOf(error))
  }
  const flags: Record<string, string | boolean | undefined> = {}
  for (const [name, { type, default: fallback }] of Object.entries(known)) {
    const variable = `KEYTURN_${name.replaceAll('-', '_').toUpperCase()}`
    const spoken = env[variable]
    if (given[name] !== undefined) flags[name] = given[name]
    else if (spoken === undefined || spoken === '') flags[name] = fallback
    else flags[name] = type === 'string' ? spoken : switchOf(spoken, variable)
  }
  return flags
}

function switchOf(text: string, variable: string): boolean {
  if (text !== 'true' && text !== 'false') throw invalid(`${variable} must be true or false`)
  return text === 'true'
}

function serverFrom(flags: Flags): ServerConfig {
  const dataDir = requireText(flags, 'data')
  const certFile = textOf(flags, 'tls-cert')
  const keyFile = textOf(flags, 'tls-key')
  if ((certFile === undefined) !== (keyFile === undefined)) throw invalid('--tls-cert and --tls-key go together')
  return {
    dataDir,
    listen: listOf(requireText(flags, 'listen')).map(addressOf),
    socket: textOf(flags, 'socket'),
    sealKeyFile: textOf(flags, 'seal-key') ?? `${dataDir}/seal-key`,
    tls: certFile !== undefined && keyFile !== undefined ? { certFile, keyFile } : undefined,
    tlsNames: listOf(textOf(flags, 'tls-names') ?? ''),
    plainHttp: flags['plain-http'] === true,
    auditLog: textOf(flags, 'audit-log') ?? `${dataDir}/audit.log`,
    trustedProxies: listOf(textOf(flags, 'trusted-proxies') ?? ''),
    proxyProtocol: flags['proxy-protocol'] === true,
    controllerTokenFile: textOf(flags, 'controller-token'),
    logLevel: levelOf(flags),
  }
}

function addressOf(text: string): { host: string; port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:]*)):(\d+)$/.exec(text)
  if (!match) throw invalid(`--listen must be HOST:PORT, not "${text}"`)
  return { host: match[1] ?? match[2] ?? '', port: portOf(match[3] ?? '', '--listen') }
}

function portOf(text: string, flag: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 65_536
  if (port > 65_535) throw invalid(`${flag}: the port must be a number up to 65535`)
  return port
}

function levelOf(flags: Flags): string {
  const level = requireText(flags, 'log-level')
  if (!LOG_LEVELS.includes(level)) throw invalid(`--log-level must be one of ${LOG_LEVELS.join(', ')}`)
  return level
}

function listOf(text: string): string[] {
  return text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
}

function textOf(flags: Flags, name: string): string | undefined {
  const value = flags[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}

function requireText(flags: Flags, name: string): string {
  const value = textOf(flags, name)
  if (value === undefined) throw invalid(`--${name} must not be empty`)
  return value
}

function freeze<T extends object>(config: T): T {
  return Object.freeze(config)
}
