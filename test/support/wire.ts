import { readFile } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import type { Keyturn, Reply } from './keyturn.ts'

/** One request with its target exactly as given: nothing between here and the server tidies `..`, spaces or methods. */
export interface WireRequest {
  readonly method: string
  /** From the first slash on. */
  readonly target: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Buffer
  /** Says that the body is this long and leaves it at its beginning: a refusal comes before the rest. */
  readonly declaredBytes?: number
  readonly socket?: boolean
}

export interface Wire {
  send(request: WireRequest): Promise<Reply>
  close(): void
}

export async function openWire(keyturn: Pick<Keyturn, 'port' | 'caFile' | 'socket'>): Promise<Wire> {
  const overTls = new https.Agent({ keepAlive: true, ca: await readFile(keyturn.caFile, 'utf8'), maxSockets: 20 })
  const overSocket = new http.Agent({ keepAlive: true })
  return {
    send({ method, target, headers = {}, body, declaredBytes, socket = false }) {
      return new Promise((resolve, reject) => {
        const options = {
          method,
          path: target,
          headers: {
            ...headers,
            ...(body !== undefined && { 'content-length': String(declaredBytes ?? Buffer.byteLength(body)) }),
          },
        }
        const answered = (response: http.IncomingMessage) => {
          let text = ''
          response.setEncoding('utf8')
          response.on('data', (chunk: string) => (text += chunk))
          response.on('error', reject)
          response.on('end', () => {
            if (declaredBytes !== undefined) request.destroy()
            let parsed: unknown
            try {
              parsed = JSON.parse(text)
            } catch {
              parsed = undefined
            }
            resolve({ status: response.statusCode ?? 0, headers: response.headers, text, body: parsed })
          })
        }
        const request = socket
          ? http.request({ ...options, agent: overSocket, socketPath: keyturn.socket }, answered)
          : https.request({ ...options, agent: overTls, host: '127.0.0.1', port: keyturn.port }, answered)
        request.on('error', reject)
        if (declaredBytes === undefined) request.end(body)
        else request.write(body)
      })
    },
    close() {
      overTls.destroy()
      overSocket.destroy()
    },
  }
}

/** A path of the API as it stands in a request: each segment percent-encoded. */
export function spelled(path: string): string {
  return `/v1/${path.split('/').map(encodeURIComponent).join('/')}`
}
