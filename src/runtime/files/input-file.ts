import { createReadStream, createWriteStream } from 'node:fs';
import { open, symlink, readFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { isSystemError, AppError, unlessMissing } from '../errors.ts';
import { namingDisk } from './durable-file.ts';

export async function readStart(file: string, bytes: number): Promise<Buffer> {
  const handle = await open(file, 'r');
  try {
    const buffer = Buffer.alloc(bytes);
    const { bytesRead } = await handle.read(buffer, 0, bytes, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}

/** Reads a file's bytes, gunzipped if `gzip`; a plain one from byte `start` on. Ending early closes the file. */
export async function* readPlain(file: string, gzip: boolean, start = 0): AsyncGenerator<Buffer> {
  const source = createReadStream(file, { highWaterMark: 1024 * 1024, start });
  const plain = gzip ? source.pipe(createGunzip()) : source;
  source.on('error', (error) => plain.destroy(error));
  try {
    yield* plain;
  } finally {
    plain.destroy();
    source.destroy();
  }
}

/** Reports whether a gzip file is complete, by the checksums of its members. Reads all of it. Errors: the system's. */
export async function isCompleteGzip(file: string, signal: AbortSignal): Promise<boolean> {
  const plain = readPlain(file, true);
  try {
    for (let next = await plain.next(); next.done !== true; next = await plain.next()) if (signal.aborted) break;
    return true;
  } catch (error) {
    if (isSystemError(error, 'Z_BUF_ERROR', 'Z_DATA_ERROR')) return false;
    throw error;
  } finally {
    await plain.return(undefined);
  }
}

/** Writes a stream to a new work file. Errors: the system's, the signal's. */
export async function writeInput(input: AsyncIterable<Uint8Array>, file: string, signal: AbortSignal): Promise<void> {
  const target = createWriteStream(file, { flags: 'wx', mode: 0o600 });
  await namingDisk(file, () => pipeline(Readable.from(input), target, { signal }));
}

/** Creates a symbolic link, for programs that interpret a file's name. */
export async function linkInput(file: string, name: string): Promise<void> {
  await symlink(path.resolve(file), name);
}

/** Writes pieces to a file, gzipped or not, and syncs its bytes. Mode 0600. */
export async function writePieces(
  pieces: AsyncIterable<Uint8Array>,
  file: string,
  { gzip, signal }: { readonly gzip: boolean; readonly signal: AbortSignal },
): Promise<void> {
  const target = createWriteStream(file, { flags: 'w', mode: 0o600, flush: true });
  const source = Readable.from(pieces);
  await namingDisk(file, () =>
    gzip ? pipeline(source, createGzip({ level: 1 }), target, { signal }) : pipeline(source, target, { signal }),
  );
}

/** The descriptor by which a child learns that its standard input was complete. */
export const completionDescriptor = 3;

/** Reads an input, then the byte by which the writer confirms that it was complete. Error: `file_damaged`. */
export async function* readConfirmedInput(
  input: AsyncIterable<Uint8Array>,
  descriptor: number,
): AsyncGenerator<Uint8Array> {
  yield* input;
  const completion = createReadStream('', { fd: descriptor });
  const { done } = await completion[Symbol.asyncIterator]().next();
  if (done === true)
    throw new AppError('file_damaged', 'the input is truncated; nothing was loaded', {
      hint: 'Retry with the complete file.',
    });
}

export async function getTextFile(file: string): Promise<string> {
  return await readFile(file, 'utf8');
}

export async function getBytes(file: string): Promise<Buffer> {
  return await readFile(file);
}

/** Reads a file in pieces of at most 1 MiB. Opens it when the first one is asked for. */
export async function* streamFile(file: string): AsyncGenerator<Uint8Array> {
  yield* createReadStream(file, { highWaterMark: 1024 * 1024 });
}

const others = 0o077;

/** Reads a text file with secrets; undefined without one. Error: `config_invalid` if other users have access. */
export async function findPrivateFile(file: string): Promise<string | undefined> {
  const handle = await unlessMissing(open(file, 'r'), undefined);
  if (handle === undefined) return undefined;
  try {
    const { mode } = await handle.stat();
    if ((mode & others) !== 0)
      throw new AppError('config_invalid', `${file} has secrets and is accessible to other users`, {
        hint: `Run 'chmod 600 ${file}', and rotate its secrets if other users may have read them.`,
      });
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}
