import { createHmac } from 'node:crypto'
import { unavailable } from '../lib/errors.ts'
import type { Random } from '../lib/random.ts'
import { Secret } from '../lib/secret.ts'
import type { Sink, Source } from './source/source.ts'

/** A keyed MAC over texts; what it was made of cannot be guessed from it without the installation's key (b.5). */
export type Mac = (parts: readonly (string | Secret)[]) => string

/** Name of the Secret in the central namespace that holds the key. */
export const MAC_SECRET = 'keyturn-mac-key'
const KEY = 'key'

/** Reads the installation's key, or makes it at the first start. Losing it costs one more write of every Secret, no credential. */
export async function openMac(options: {
  readonly source: Pick<Source, 'readSecretKey'>
  readonly sink: Pick<Sink, 'applySecret'>
  readonly random: Random
  readonly namespace: string
}): Promise<Mac> {
  const { source, sink, random, namespace } = options
  const ref = { namespace, name: MAC_SECRET, key: KEY }
  const known = await source.readSecretKey(ref)
  if (known) return macWith(known)
  const made = new Secret(random.bytes(32).toString('hex'))
  const answer = await sink.applySecret({
    namespace,
    name: MAC_SECRET,
    type: 'Opaque',
    data: new Map([[KEY, made]]),
    labels: { 'app.kubernetes.io/managed-by': 'keyturn', 'keyturn.dev/managed': 'true' },
    annotations: {},
    mode: 'Create',
  })
  if (answer.result === 'written') return macWith(made)
  // Another replica may have been first.
  const theirs = await source.readSecretKey(ref)
  if (theirs) return macWith(theirs)
  throw unavailable(`the Secret ${namespace}/${MAC_SECRET} can neither be read nor made: ${answer.message}`)
}

export function macWith(key: Secret): Mac {
  return (parts) => {
    const mac = createHmac('sha256', key.reveal())
    for (const part of parts) {
      const text = typeof part === 'string' ? part : part.reveal()
      mac.update(`${Buffer.byteLength(text)}:`).update(text)
    }
    return mac.digest('hex')
  }
}
