import net from 'node:net'

/** Tag of the answer to a modify (RFC 4511, 4.6). */
export const MODIFY_RESPONSE = 0x67

/** A way to a directory on which a test may lose answers. */
export interface LdapProxy extends AsyncDisposable {
  readonly url: string
  /** Asked for each answer by its tag; false ends its connection instead of passing it on. */
  passes: (tag: number) => boolean
  /** While true, connections are closed as they come. */
  isDown: boolean
}

export async function startLdapProxy(port: number): Promise<LdapProxy> {
  const open = new Set<net.Socket>()
  const server = net.createServer((near) => {
    open.add(near)
    near.on('error', () => undefined).on('close', () => open.delete(near))
    if (proxy.isDown) return void near.destroy()
    const far = net.connect(port, '127.0.0.1').on('error', () => undefined)
    near.on('data', (octets) => far.write(octets)).on('close', () => far.destroy())
    far.on('close', () => near.destroy())
    far.on('data', (octets: Buffer) => {
      // Answers of one connection come one at a time: head of the message, its number, the tag.
      if (proxy.passes(octets[5] ?? 0)) near.write(octets)
      else near.destroy()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const proxy: LdapProxy = {
    url: `ldap://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`,
    passes: () => true,
    isDown: false,
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return proxy
}
