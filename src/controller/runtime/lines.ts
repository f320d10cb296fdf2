const NEWLINE = 0x0a

/**
 * The lines of a byte stream. Bytes are decoded by whole lines only: no character of UTF-8 holds a newline byte, so one that is
 * split over two pieces comes out whole. A last line without its newline was cut off and is not given out.
 */
export async function* readLines(stream: AsyncIterable<Uint8Array>, onBytes?: () => void): AsyncGenerator<string> {
  let pieces: Uint8Array[] = []
  for await (const chunk of stream) {
    onBytes?.()
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      pieces.push(chunk.subarray(start, end))
      const line = Buffer.concat(pieces).toString('utf8')
      pieces = []
      start = end + 1
      if (line !== '') yield line
    }
    if (start < chunk.length) pieces.push(chunk.subarray(start))
  }
}
