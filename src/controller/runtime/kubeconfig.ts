import { existsSync } from 'node:fs'
import type { RequestOptions } from 'node:https'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { invalid, messageOf } from '../../lib/errors.ts'
import { Secret } from '../../lib/secret.ts'
import type { KubeCredentials, KubeEndpoint } from './endpoint.ts'

/**
 * Outside a cluster: a kubeconfig with all that it may hold (exec plug-ins, OIDC, client certificates), read by the library.
 * The library is loaded only when this is called: in a pod it would cost 60 MB for nothing.
 */
export async function kubeconfigEndpoint(path = join(homedir(), '.kube/config')): Promise<KubeEndpoint> {
  // The library would go on with a cluster at http://localhost:8080.
  if (!existsSync(path))
    throw invalid(
      `there is no kubeconfig ${path}, and this is no pod: give --kubeconfig FILE, or --manifests and --secrets to do without a cluster`,
    )
  const { KubeConfig } = await import('@kubernetes/client-node')
  const config = new KubeConfig()
  try {
    config.loadFromFile(path)
  } catch (error) {
    throw invalid(`kubeconfig ${path} cannot be read: ${messageOf(error)}`, { cause: error })
  }
  const cluster = config.getCurrentCluster()
  if (!cluster) throw invalid(`kubeconfig ${path} has no current context with a cluster`)
  const context = config.getContextObject(config.getCurrentContext())
  return {
    server: cluster.server.replace(/\/+$/, ''),
    namespace: context?.namespace,
    async load() {
      const options: RequestOptions = {}
      // The one object for good: it keeps what exec plug-ins and OIDC gave out until that ends.
      await config.applyToHTTPSOptions(options)
      return credentialsOf(options)
    },
  }
}

function credentialsOf(options: RequestOptions): KubeCredentials {
  const headers: Record<string, unknown> = { ...options.headers }
  const header = headers['Authorization'] ?? headers['authorization']
  const basic = options.auth ? `Basic ${Buffer.from(options.auth).toString('base64')}` : undefined
  const authorization = typeof header === 'string' ? header : basic
  const { ca, cert, key, servername, rejectUnauthorized } = options
  return {
    ...(authorization && { authorization: new Secret(authorization) }),
    ...(ca && { ca: String(ca) }),
    ...(cert && { cert: String(cert) }),
    ...(key && { key: new Secret(String(key)) }),
    ...(servername && { servername }),
    ...(rejectUnauthorized === false && { insecure: true }),
  }
}
