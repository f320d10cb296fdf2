import { setTimeout as sleep } from 'node:timers/promises'
import { clusterAvailable, startCluster } from '../test/support/cluster.ts'
import { type Operator, resource, startOperator, watchSecrets } from '../test/support/operator.ts'
import { loadOver, rssMb, until } from './load.ts'
import type { Report } from './report.ts'

const ROLES = 1_000
const MORE = 40
const ENGINE = 'corp'

/**
 * The operator over a real API server: starts, memory, and from `apply` to the Secret. Here it has a kubeconfig, whose library takes memory that
 * it does not in a pod.
 */
export async function cluster(report: Report): Promise<void> {
  if (!clusterAvailable()) {
    console.log('  *** LEFT OUT: there is no Kubernetes control plane, nor Go to build one ***')
    return
  }
  const started = await startCluster()
  try {
    const operator = await startOperator(started, { bulk: ROLES + 2 * MORE, logLevel: 'info' })
    try {
      await measure(report, operator)
    } finally {
      await operator.stop()
    }
  } finally {
    await started.stop()
  }
}

async function measure(report: Report, operator: Operator): Promise<void> {
  const startMs = performance.now()
  const second = await operator.startController('second')
  report.add('start of the controller, until it campaigns', performance.now() - startMs, 'ms')
  await second.kill()
  const namespace = await operator.namespace({ tenant: 'yes' })
  await operator.engine(ENGINE)
  await memory(report, operator, 'after start')
  await times(report, operator, namespace, 'no others')

  const names = Array.from({ length: ROLES }, () => operator.account().username)
  const beganMs = performance.now()
  await loadOver(8, names, (name) => applyRole(operator, namespace, name))
  const list = `/api/v1/namespaces/${namespace}/secrets?limit=5000`
  await until('the last of 1,000 Secrets', 300_000, async () => {
    const { body } = await operator.cluster.request('GET', list)
    return body.items.length >= ROLES + MORE
  })
  report.add('Secrets of 1,000 roles applied at once', (ROLES * 1000) / (performance.now() - beganMs), '/s')
  await memory(report, operator, 'with 1,000 roles')
  await times(report, operator, namespace, '1,000 others')
}

async function memory(report: Report, { controller, server }: Operator, when: string): Promise<void> {
  await sleep(3_000)
  report.add(`RSS of the controller, ${when}`, await rssMb(controller.pid), 'MB')
  report.add(`RSS of the server beside it, ${when}`, await rssMb(server.pid), 'MB')
}

/** One role after the other. */
async function times(report: Report, operator: Operator, namespace: string, beside: string): Promise<void> {
  const watch = await watchSecrets(operator.cluster, namespace)
  const seen: number[] = []
  for (let n = 0; n < MORE; n++) {
    const { username } = operator.account()
    const fromMs = performance.now()
    await applyRole(operator, namespace, username)
    seen.push((await watch.next(username, fromMs)).atMs - fromMs)
  }
  watch.stop()
  report.addTimes(`apply -> Secret, ${beside}`, seen)
}

function applyRole({ cluster }: Operator, namespace: string, username: string): Promise<unknown> {
  const spec = { engineRef: { name: ENGINE }, username, rotationPeriod: '24h', output: {} }
  return cluster.apply(resource('LdapStaticRole', username, namespace, spec))
}
