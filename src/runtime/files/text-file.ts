import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';

/** Reads a text file (UTF-8). Errors: those of the system, also when there is none. */
export async function getTextFile(file: string): Promise<string> {
  return await readFile(file, 'utf8');
}

/** Reads a file's bytes, whole. Errors: those of the system, also when there is none. */
export async function getBytes(file: string): Promise<Buffer> {
  return await readFile(file);
}

/**
 * Reads a file's bytes from its beginning to its end, in pieces of at most 1 MiB; opens it when the first is asked for.
 * Errors: those of the system.
 */
export async function* streamFile(file: string): AsyncGenerator<Uint8Array> {
  for await (const piece of createReadStream(file, { highWaterMark: 1024 * 1024 })) yield piece as Uint8Array;
}
