/**
 * Compressed messages: event lines in brotli of quality 1, and their size in a header.
 *
 * A stream may have both forms. Hashes, such as that of the anchor, are of the stored bytes.
 * A message is damaged if the header is invalid, or if its bytes do not expand to exactly that size. Its lines are then
 * one line that is not an event: the lake keeps it as a failed event, with the stored bytes in base64.
 */
import { promisify } from 'node:util';
import { brotliCompress, brotliCompressSync, brotliDecompress, brotliDecompressSync, constants } from 'node:zlib';
import { headers, type MsgHdrs } from '@nats-io/transport-node';
import { maxMessageBytes, type StreamMessage } from './stream.ts';

/** Whether messages are compressed. `auto`: if the stream has more than one copy. */
export type StreamCompression = 'auto' | 'on' | 'off';

/** Header of a compressed message: the size of its lines, bytes. */
const sizeHeader = 'Tributary-Brotli';
/** Size of the header in the stream, bytes. */
const headerBytes = 40;
/** Smaller messages are sent as they are, bytes: an event of 755 bytes would become only 30 % smaller. */
const minBytes = 1024;
/** Larger messages are handled in the thread pool, bytes. That costs 0.2 ms of CPU more, as long as 64 KiB take. */
const maxSyncBytes = 128 * 1024;

const compressInPool = promisify(brotliCompress);
const decompressInPool = promisify(brotliDecompress);

/** Reports whether messages of a stream with this number of copies are compressed. */
export function isCompressing(compression: StreamCompression, copies: number): boolean {
  return compression === 'on' || (compression === 'auto' && copies > 1);
}

/** Compresses the lines of a message; undefined if it would not be smaller. */
export async function compressLines(lines: Uint8Array): Promise<Uint8Array | undefined> {
  if (lines.length < minBytes) return undefined;
  const options = {
    params: { [constants.BROTLI_PARAM_QUALITY]: 1, [constants.BROTLI_PARAM_SIZE_HINT]: lines.length },
    // A result of one chunk is not copied.
    chunkSize: lines.length,
  };
  const compressed =
    lines.length <= maxSyncBytes ? brotliCompressSync(lines, options) : await compressInPool(lines, options);
  return compressed.length + headerBytes < lines.length ? compressed : undefined;
}

/** Returns the headers of a compressed message. */
export function renderSize(linesBytes: number): MsgHdrs {
  const rendered = headers();
  rendered.set(sizeHeader, String(linesBytes));
  return rendered;
}

/** Finds the size of the lines of a compressed message: 0 if it is invalid, undefined for a message of plain lines. */
export function findLinesBytes(readHeaders: () => MsgHdrs | undefined): number | undefined {
  let size: string | undefined;
  try {
    size = readHeaders()?.get(sizeHeader);
  } catch {
    // The client refuses malformed headers of other publishers.
    return undefined;
  }
  if (size === undefined || size === '') return undefined;
  const bytes = /^[1-9]\d{0,6}$/.test(size) ? Number(size) : 0;
  return bytes <= maxMessageBytes ? bytes : 0;
}

async function expand(payload: Uint8Array, bytes: number): Promise<Uint8Array> {
  // With space left in its only chunk, the engine ends without another one.
  const options = { maxOutputLength: bytes, chunkSize: bytes + 64 };
  return bytes <= maxSyncBytes ? brotliDecompressSync(payload, options) : await decompressInPool(payload, options);
}

/** Reports whether an error is a lack of memory, which a later attempt may not have. */
function isNoMemory(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /ALLOC|INITIALIZATION/.test(String(error.code));
}

/** Returns the lines of a message of either form; those of a damaged one are a line that is not an event. */
export async function readLines({ sequence, payload, linesBytes }: StreamMessage): Promise<Uint8Array> {
  if (linesBytes === undefined) return payload;
  try {
    const lines = linesBytes === 0 ? undefined : await expand(payload, linesBytes);
    if (lines?.length === linesBytes) return lines;
  } catch (error) {
    if (isNoMemory(error)) throw error;
  }
  const stored = Buffer.from(payload.buffer, payload.byteOffset, payload.length).toString('base64');
  return Buffer.from(`damaged message ${sequence} of the stream, compressed by brotli: ${stored}\n`);
}
