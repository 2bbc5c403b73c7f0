import type { IncomingMessage } from 'node:http';
import { gunzipSync } from 'node:zlib';
import { isSystemError } from '../runtime/errors.ts';
import { maxBodyBytes } from './limits.ts';
import type { Refusal } from './refusal.ts';

/** gzip of data that does not compress is a little larger than the data. */
const maxCompressedBytes = maxBodyBytes + 1024;

const tooLarge: Refusal = { reason: 'size', detail: `the body is larger than ${maxBodyBytes} bytes` };

/**
 * Reads a body of at most `limit` bytes; stops reading at the first byte too many. Rejects when the client goes away.
 */
function readRaw(request: IncomingMessage, limit: number): Promise<Buffer | Refusal> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > limit) {
        // What still comes is drained without being kept, so that the answer can be read.
        chunks.length = 0;
        resolve(tooLarge);
        return;
      }
      chunks.push(chunk);
    });
    request.once('end', () =>
      resolve(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)),
    );
    request.once('error', reject);
    request.once('close', () => reject(new Error('the client went away')));
  });
}

function inflate(compressed: Buffer): Buffer | Refusal {
  try {
    // Small enough for the main thread: at most 10 KB come out, a bomb is cut off there.
    return gunzipSync(compressed, { maxOutputLength: maxBodyBytes });
  } catch (error) {
    if (isSystemError(error, 'ERR_BUFFER_TOO_LARGE')) return tooLarge;
    return { reason: 'encoding', detail: 'the body is not valid gzip' };
  }
}

/** Reads a request's body whole, decompressed. Empty: a refusal. */
export async function readBody(request: IncomingMessage): Promise<Buffer | Refusal> {
  const encoding = (request.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  const isGzip = encoding === 'gzip' || encoding === 'x-gzip';
  if (!isGzip && encoding !== 'identity' && encoding !== '')
    return { reason: 'encoding', detail: 'Content-Encoding must be gzip or absent' };

  const limit = isGzip ? maxCompressedBytes : maxBodyBytes;
  if (Number(request.headers['content-length'] ?? 0) > limit) return tooLarge;
  const raw = await readRaw(request, limit);
  const body = isGzip && Buffer.isBuffer(raw) && raw.length > 0 ? inflate(raw) : raw;
  return Buffer.isBuffer(body) && body.length === 0 ? { reason: 'empty', detail: 'the body is empty' } : body;
}
