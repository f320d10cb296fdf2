import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/**
 * The image, built by scripts/image.sh and run without a container engine: its file system mounted read-only, changed root, the image's own
 * user, entry point and environment, and volumes as a kubelet makes them for `fsGroup`. The network is this machine's, so listen on loopback.
 */

const root = join(import.meta.dirname, '../..')

export interface ImageConfig {
  readonly User: string
  readonly Entrypoint: readonly string[]
  readonly Env: readonly string[]
  readonly Labels: Readonly<Record<string, string>>
}

export interface BuiltImage extends Disposable {
  readonly config: ImageConfig
  readonly sizeBytes: number
  /** Where the image's files are to be seen. */
  readonly files: string
  /** Directories on this machine that hold the volumes. */
  readonly data: string
  /** Starts the image's entry point with these arguments, or another program in its place. */
  start(args: readonly string[], as?: { readonly program?: readonly string[]; readonly user?: string }): ChildProcess
}

/** Why no image can be built here; `undefined` where it can. Installs the packages for it where that is possible. */
export function imageUnavailable(): string | undefined {
  if (process.getuid?.() !== 0) return 'building an image without Docker needs root'
  const install = spawnSync('sh', [join(root, 'scripts/packages.sh'), 'buildah', 'debootstrap'], { encoding: 'utf8' })
  return install.status === 0 ? undefined : install.stderr.trim()
}

// Bind mounts first, then the root becomes read-only, which leaves what is mounted in it as it is.
const ENTER = `set -e
root=$1 volumes=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mount -t tmpfs -o mode=2770,gid=65532 run "$root/run/keyturn"
mount --bind "$volumes/data" "$root/var/lib/keyturn"
mount --bind "$volumes/seal" "$root/seal"
mount -o remount,ro,bind "$root/seal"
mount -o remount,ro,bind "$root"
exec chroot --userspec="$user" --groups=65532 "$root" "$@"`

/** Builds the image and opens it; the base of Debian packages is made once and kept. */
export function buildImage(): BuiltImage {
  const tag = `localhost/keyturn-test:${process.pid}`
  const env = { ...process.env, BASE: 'debootstrap' }
  command('sh', [join(root, 'scripts/image.sh'), '--tag', tag], { env, shown: true })
  const container = command('buildah', ['from', tag]).trim()
  const files = command('buildah', ['mount', container]).trim()
  const { OCIv1 } = JSON.parse(command('buildah', ['inspect', '--type', 'image', tag]))
  const volumes = mkdtempSync(join(tmpdir(), 'kt-image-'))
  const data = join(volumes, 'data')
  const seal = join(volumes, 'seal')
  mkdirSync(data)
  mkdirSync(seal)
  mkdirSync(join(files, 'seal'))
  writeFileSync(join(seal, 'key'), `${Buffer.alloc(32, 7).toString('base64')}\n`)
  for (const [file, mode] of [
    [data, 0o2770],
    [seal, 0o2550],
    [join(seal, 'key'), 0o440],
  ] as const) {
    chownSync(file, 0, 65_532)
    chmodSync(file, mode)
  }
  const config: ImageConfig = OCIv1.config
  const running: ChildProcess[] = []
  return {
    config,
    files,
    data,
    sizeBytes: Number(command('du', ['-s', '-x', '-B1', files]).split('\t')[0]),
    start(args, { program = config.Entrypoint, user = config.User } = {}) {
      const enter = ['-m', '--propagation', 'private', 'sh', '-c', ENTER, 'enter', files, volumes, user]
      const set = Object.fromEntries(config.Env.map((line) => line.split(/=(.*)/s, 2)))
      // The programs that enter are this machine's; the image's PATH is the usual one too.
      const child = spawn('unshare', [...enter, ...program, ...args], { env: set, stdio: ['ignore', 'pipe', 'pipe'] })
      running.push(child)
      return child
    },
    [Symbol.dispose]() {
      for (const child of running) child.kill('SIGKILL')
      command('buildah', ['rm', container])
      command('buildah', ['rmi', tag])
      rmSync(volumes, { recursive: true, force: true })
    },
  }
}

function command(name: string, args: readonly string[], options: { env?: NodeJS.ProcessEnv; shown?: boolean } = {}) {
  const { status, stdout, stderr, error } = spawnSync(name, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', options.shown ? 'inherit' : 'pipe'],
    env: options.env ?? process.env,
  })
  if (error) throw error
  if (status !== 0) throw new Error(`${name} ${args.join(' ')} ended with ${status}: ${stderr ?? ''}`)
  return stdout
}
