import type net from 'node:net'
import { elementSize } from './ber.ts'
import { decodeAnswer } from './message.ts'

const OID = Buffer.from('1.3.6.1.4.1.1466.20037')
const SEQUENCE = 0x30
const MESSAGE_ID = 1
const LONGEST_ANSWER = 4096

/**
 * Asks for StartTLS (RFC 4511, 4.14) and returns when the server agreed. Nothing may follow the answer: octets that came in the clear
 * would otherwise be read as if they had come through TLS.
 */
export async function startTls(socket: net.Socket, signal: AbortSignal): Promise<void> {
  // LDAPMessage { 1, [APPLICATION 23] { [0] OID } }
  const request = Buffer.concat([Buffer.from([0x80, OID.length]), OID])
  const operation = Buffer.concat([Buffer.from([0x77, request.length]), request])
  socket.write(Buffer.concat([Buffer.from([0x30, operation.length + 3, 0x02, 0x01, 0x01]), operation]))
  const answer = await readMessage(socket, signal)
  const code = resultCode(answer)
  if (code !== 0) throw new Error(`the server refuses StartTLS (result code ${code})`)
}

function readMessage(socket: net.Socket, signal: AbortSignal): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let got = Buffer.alloc(0)
    const end = (error: unknown, message?: Buffer) => {
      socket.pause()
      socket.off('data', onData).off('error', onError).off('close', onClose)
      signal.removeEventListener('abort', onAbort)
      if (message) resolve(message)
      else reject(error)
    }
    const onError = (error: unknown) => end(error)
    const onClose = () => end(new Error('the server closed the connection in answer to StartTLS'))
    const onAbort = () => end(signal.reason)
    const onData = (chunk: Buffer) => {
      got = Buffer.concat([got, chunk])
      let length: number | undefined
      try {
        if (got[0] !== SEQUENCE) throw new Error('no message begins like this')
        length = elementSize(got, LONGEST_ANSWER)
      } catch (error) {
        return end(new Error('the answer to StartTLS is not LDAP', { cause: error }))
      }
      if (length === undefined || got.length < length) return
      if (got.length > length) return end(new Error('the server sent data in the clear after its answer to StartTLS'))
      end(undefined, got)
    }
    if (signal.aborted) return reject(signal.reason)
    socket.on('data', onData).on('error', onError).on('close', onClose)
    signal.addEventListener('abort', onAbort, { once: true })
    socket.resume()
  })
}

function resultCode(message: Buffer): number {
  const answer = decodeAnswer(message)
  if (answer.is !== 'extended' || answer.id !== MESSAGE_ID) throw new Error('the answer to StartTLS is none')
  return answer.code
}
