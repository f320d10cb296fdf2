import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Secret } from '../../lib/secret.ts'

/** How to be believed by the API server, at this moment; asked for again when it may have changed. */
export interface KubeCredentials {
  readonly authorization?: Secret
  readonly ca?: string
  readonly cert?: string
  readonly key?: Secret
  readonly servername?: string
  /** Only where a kubeconfig says so. */
  readonly insecure?: boolean
}

/** Where the API server is. */
export interface KubeEndpoint {
  readonly server: string
  /** The namespace we live in, where known. */
  readonly namespace: string | undefined
  load(): Promise<KubeCredentials>
}

const SERVICE_ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount'

/** Inside a pod: two files (read at each `load`, kubelet replaces them) and the values of two environment variables. */
export async function inClusterEndpoint(options: {
  readonly host: string
  readonly port: string
  readonly dir?: string
}): Promise<KubeEndpoint> {
  const dir = options.dir ?? SERVICE_ACCOUNT_DIR
  const host = options.host.includes(':') ? `[${options.host}]` : options.host
  const namespace = await readFile(join(dir, 'namespace'), 'utf8').catch(() => undefined)
  return {
    server: `https://${host}:${options.port}`,
    namespace: namespace?.trim() || undefined,
    async load() {
      const [token, ca] = await Promise.all([
        readFile(join(dir, 'token'), 'utf8'),
        readFile(join(dir, 'ca.crt'), 'utf8'),
      ])
      return { authorization: new Secret(`Bearer ${token.trim()}`), ca }
    },
  }
}
