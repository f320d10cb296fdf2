/** Waits in line until somebody calls the first of it; an aborted signal leaves the line and rejects with the signal's reason. */
export function waitInLine(line: (() => void)[], ...signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (end: () => void) => {
      for (const signal of signals) signal.removeEventListener('abort', leave)
      end()
    }
    const go = () => settle(resolve)
    const leave = () => {
      const at = line.indexOf(go)
      if (at >= 0) line.splice(at, 1)
      settle(() => reject(signals.find(({ aborted }) => aborted)?.reason))
    }
    if (signals.some(({ aborted }) => aborted)) return leave()
    line.push(go)
    for (const signal of signals) signal.addEventListener('abort', leave)
  })
}
