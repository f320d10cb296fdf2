import { readFileSync } from 'node:fs'
import net from 'node:net'

/*
 * Ports for servers that must be told theirs. Seconds pass before such a server listens, and it may go down and come again on the same port, so nobody
 * else may get it meanwhile. They are taken below those that the kernel gives to connections and to `listen(0)`, in blocks. A process holds the first
 * port of its block for as long as it lives; so no other process of any test run on this machine hands out the same one.
 */

const BLOCK = 64
const FIRST = 10_240
const KERNELS_FIRST = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split('\t')[0])
// A kernel that begins lower leaves no room: its ports are shared with it then.
const BLOCKS = Math.floor((Math.max(KERNELS_FIRST, 2 * FIRST) - FIRST) / BLOCK)

const ports = handOut()

/** A port on which nobody listens; this process never gives it to anybody else. */
export async function freePort(): Promise<number> {
  return (await ports.next()).value
}

async function* handOut(): AsyncGenerator<number, never> {
  for (let tries = 0; tries < BLOCKS; tries++) {
    const marker = FIRST + ((process.pid + tries) % BLOCKS) * BLOCK
    const held = await listen(marker, '127.0.0.1')
    if (!held) continue
    held.unref()
    for (let port = marker + 1; port < marker + BLOCK; port++) {
      const free = await listen(port)
      if (!free) continue
      await new Promise((closed) => free.close(closed))
      yield port
    }
  }
  throw new Error(`all ${BLOCKS} blocks of ports are in use`)
}

/** Absent: somebody else listens there. Without a host, on any address. */
function listen(port: number, host?: string): Promise<net.Server | undefined> {
  return new Promise((resolve) => {
    const server = net.createServer()
    server.once('error', () => resolve(undefined)).listen({ port, host, exclusive: true }, () => resolve(server))
  })
}
