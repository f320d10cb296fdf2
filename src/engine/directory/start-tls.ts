import type net from 'node:net'
import { BerReader } from 'ldapts'

const OID = Buffer.from('1.3.6.1.4.1.1466.20037')
const EXTENDED_RESPONSE = 0x78
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
      const length = messageLength(got)
      if (length === 'wrong' || got.length > LONGEST_ANSWER) return end(new Error('the answer to StartTLS is not LDAP'))
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

/** Length of the BER message that begins here, head included; `undefined` while the head is incomplete. */
function messageLength(octets: Buffer): number | undefined | 'wrong' {
  const [tag, first] = octets
  if (tag !== undefined && tag !== 0x30) return 'wrong'
  if (first === undefined) return undefined
  if (first < 0x80) return 2 + first
  const size = first & 0x7f
  if (size === 0 || size > 2) return 'wrong'
  return octets.length < 2 + size ? undefined : 2 + size + octets.readUIntBE(2, size)
}

function resultCode(message: Buffer): number {
  const reader = new BerReader(message)
  reader.readSequence()
  const id = reader.readInt()
  const operation = reader.readSequence()
  if (id !== 1 || operation !== EXTENDED_RESPONSE) throw new Error('the answer to StartTLS is none')
  const code = reader.readEnumeration()
  if (code === null) throw new Error('the answer to StartTLS has no result code')
  return code
}
