import type { ChildProcess } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { Agent, request } from 'undici'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { LEAST, renderChart, requireRendered } from '../support/chart.ts'
import { HELM, until } from '../support/cluster.ts'
import { type BuiltImage, buildImage, imageUnavailable } from '../support/image.ts'
import { freePort } from '../support/ports.ts'

const unavailable = imageUnavailable()
if (unavailable !== undefined) {
  const why = `the tests of the image are LEFT OUT: ${unavailable}`
  if (process.env['CI'] === 'true') throw new Error(why)
  console.error(`\n*** ${why} ***\n`)
}

const version: string = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8')).version
const ended = async (child: ChildProcess) => {
  if (!child.stdout || !child.stderr) throw new Error('started without pipes')
  const code = new Promise<number | null>((resolve) => child.once('close', resolve))
  const [status, out, errors] = await Promise.all([code, text(child.stdout), text(child.stderr)])
  return { status, out, errors }
}

describe.skipIf(unavailable !== undefined)('the image', () => {
  let image: BuiltImage
  // The first time, Debian's packages are fetched and unpacked.
  beforeAll(() => {
    image = buildImage()
  }, 900_000)
  afterAll(() => image?.[Symbol.dispose]())

  test('runs keyturn, as a user that is a number and not root', async () => {
    expect(image.config.User).toBe('65532:65532')
    expect(await ended(image.start(['version']))).toMatchObject({ status: 0, out: `keyturn ${version}\n` })
  })

  test('says what it is', () => {
    expect(image.config.Labels).toMatchObject({
      'org.opencontainers.image.title': 'keyturn',
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.licenses': 'Apache-2.0',
      'org.opencontainers.image.revision': expect.stringMatching(/^[0-9a-f]{40}$|^unknown$/),
      'org.opencontainers.image.base.name': expect.stringContaining('bookworm'),
    })
  })

  test('holds what runs and nothing else', () => {
    const modules = readdirSync(join(image.files, 'opt/keyturn/node_modules'))
    expect(modules).toEqual(expect.arrayContaining(['fastify', 'ldapts', 'zod']))
    for (const developers of ['vitest', 'typescript', 'node', 'knip', 'vite']) expect(modules).not.toContain(developers)
    const files = readdirSync(join(image.files, 'opt/keyturn'), { recursive: true, encoding: 'utf8' })
    expect(files.filter((file) => /\.test\.ts$|\.d\.ts$|seal-key|root-token/.test(file))).toEqual([])
    expect(image.sizeBytes / 2 ** 20).toBeLessThan(340)
  })

  test('has a file system that even root cannot change in the test', async () => {
    const program = ['touch', '/opt/keyturn/src/main.ts']
    const { status, errors } = await ended(image.start([], { program, user: '0:0' }))
    expect(status).toBe(1)
    expect(errors).toContain('Read-only file system')
  })

  test.skipIf(!existsSync(HELM))(
    'serves with the flags of the chart on a read-only root, and stops in order',
    async () => {
      const port = await freePort()
      const pod = requireRendered(renderChart(LEAST), 'Deployment').spec.template.spec
      const [engine] = pod.containers
      const args = engine.args.map((arg: string) => (arg.startsWith('--listen=') ? `--listen=127.0.0.1:${port}` : arg))
      const child = image.start(args)
      const end = ended(child)
      const caFile = join(image.data, 'tls/ca.crt')
      const hasBegun = () => existsSync(join(image.data, 'root-token')) && existsSync(caFile)
      await until(30, 'the server to be ready', () => child.exitCode !== null || hasBegun())
      if (child.exitCode !== null) throw new Error(`it ended: ${JSON.stringify(await end)}`)
      // As a client in the cluster would: the CA of the server's own, the name of the Service.
      const connect = { ca: readFileSync(caFile, 'utf8'), servername: 'keyturn.keyturn-system.svc' }
      const dispatcher = new Agent({ connect })
      const probe = engine.readinessProbe.httpGet
      const health = await until(30, 'its health', async () => {
        const answer = await request(`https://127.0.0.1:${port}${probe.path}`, { dispatcher }).catch(() => undefined)
        return answer?.statusCode === 200 ? answer.body.json() : undefined
      })
      await dispatcher.close()
      expect(health).toMatchObject({ initialized: true, sealed: false, keyturn_version: version })

      // What the controller beside it will find. The socket is opened after the port.
      const run = `/proc/${child.pid}/root/run/keyturn`
      await until(10, 'the socket', () => existsSync(join(run, 'keyturn.sock')))
      for (const name of ['keyturn.sock', 'controller-token']) {
        const { mode, uid } = statSync(join(run, name))
        expect([name, mode & 0o777, uid]).toEqual([name, 0o600, 65_532])
      }
      expect(statSync(join(image.data, 'keyturn.db')).mode & 0o777).toBe(0o600)

      child.kill('SIGTERM')
      const { status, out, errors } = await end
      expect({ status, out }).toEqual({ status: 0, out: '' })
      expect(errors.trimEnd().split('\n').at(-1)).toContain('"msg":"stopped"')
      for (const secret of ['data/root-token', 'seal/key'])
        expect(errors).not.toContain(readFileSync(join(image.data, '..', secret), 'utf8').trim())
    },
  )
})
