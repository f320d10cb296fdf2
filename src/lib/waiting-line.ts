/** Waits in line until somebody calls the first of it; an aborted signal leaves the line and rejects with the signal's reason. */
export function waitInLine(line: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    const go = () => {
      signal.removeEventListener('abort', abort)
      resolve()
    }
    const abort = () => {
      const at = line.indexOf(go)
      if (at >= 0) line.splice(at, 1)
      reject(signal.reason)
    }
    line.push(go)
    signal.addEventListener('abort', abort, { once: true })
  })
}
