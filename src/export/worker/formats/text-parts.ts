import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, rename, type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import { syncFile } from '../../../runtime/files/durable-file.ts';
import type { ReportFile } from '../../../reports/reports.ts';
import type { FinishOptions } from './format.ts';

const compress = promisify(gzip);

/** Uncompressed size of a gzip member: large enough to compress well, small enough to keep every thread busy. */
const memberBytes = 1024 * 1024;
const blockBytes = 1024 * 1024;
/** Members being compressed at once, on libuv's threads. */
const membersInFlight = 4;

/** The text that parts are made of. */
export interface TextRows {
  /** Of the uncompressed file, without the dot; a compressed one has `.gz` behind it. */
  readonly extension: string;
  /** The first row is a header, with which every part begins. */
  readonly hasHeader: boolean;
  /** Finds the end (exclusive) of the row that starts at `start`; -1: it ends beyond the buffer. */
  findRowEnd(buffer: Buffer, start: number): number;
}

/**
 * How a text becomes parts. A part's bound is bytes before compression, header included; a single row larger than that
 * has a part of its own.
 */
export interface PartOptions extends Omit<FinishOptions, 'singleFileMaxBytes'> {
  readonly isCompressed: boolean;
}

/**
 * A part being written: plain, or gzip members one after the other, which every reader takes for one stream.
 */
interface PartWriter {
  /** Adds bytes, which it keeps until they are written. */
  write(bytes: Buffer): Promise<void>;
  /** Ends the part; it is durable then. */
  finish(rows: number): Promise<ReportFile>;
  /** Closes the file of a part that will not be finished. */
  abandon(): Promise<void>;
}

async function openPart(folder: string, name: string, isCompressed: boolean): Promise<PartWriter> {
  const handle: FileHandle = await open(path.join(folder, name), 'wx', 0o600);
  const hash = createHash('sha256');
  const compressing: Promise<Buffer>[] = [];
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let bytes = 0;
  let members = 0;

  async function store(member: Promise<Buffer> | undefined): Promise<void> {
    if (member === undefined) return;
    const data = await member;
    hash.update(data);
    bytes += data.length;
    await handle.writeFile(data);
  }

  function startMember(): void {
    members += 1;
    const whole = Buffer.concat(pending);
    const member = isCompressed ? compress(whole, { level: constants.Z_BEST_SPEED }) : Promise.resolve(whole);
    // It is awaited later, in order; a failure before that must not count as unhandled.
    member.catch(() => undefined);
    compressing.push(member);
    pending = [];
    pendingBytes = 0;
  }

  return {
    async write(data) {
      pending.push(data);
      pendingBytes += data.length;
      if (pendingBytes < memberBytes) return;
      startMember();
      if (compressing.length >= membersInFlight) await store(compressing.shift());
    },
    async finish(rows) {
      // A file of no member at all is no gzip file.
      if (pendingBytes > 0 || members === 0) startMember();
      while (compressing.length > 0) await store(compressing.shift());
      await handle.sync();
      await handle.close();
      return { name, rows, bytes, sha256: hash.digest('hex') };
    },
    async abandon() {
      await Promise.allSettled(compressing);
      await handle.close();
    },
  };
}

/** Whole rows of a text, one after the other, and where each of them ends. */
interface RowBlock {
  readonly bytes: Buffer;
  readonly ends: readonly number[];
}

/** Reads a text in blocks of whole rows. A row longer than the usual block makes a longer one. */
async function* readRows(file: string, text: TextRows): AsyncGenerator<RowBlock> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const block of createReadStream(file, { highWaterMark: blockBytes })) {
    const buffer = rest.length === 0 ? (block as Buffer) : Buffer.concat([rest, block as Buffer]);
    const ends: number[] = [];
    for (let end = text.findRowEnd(buffer, 0); end !== -1; end = text.findRowEnd(buffer, end)) ends.push(end);
    const last = ends.at(-1) ?? 0;
    if (last > 0) yield { bytes: buffer.subarray(0, last), ends };
    rest = buffer.subarray(last);
  }
  if (rest.length > 0) throw new Error('the result ends inside a row');
}

/**
 * Splits a text into parts that each begin with its header, if it has one, cutting between rows only. The same text
 * gives the same bytes. Every part is durable; the folder's own entries are the caller's to sync.
 */
export async function writeParts(
  file: string,
  fileBytes: number,
  text: TextRows,
  options: PartOptions,
): Promise<ReportFile[]> {
  const { folder, stem, partMaxBytes, isCompressed, onProgress } = options;
  const extension = isCompressed ? `${text.extension}.gz` : text.extension;
  const files: ReportFile[] = [];
  let header = text.hasHeader ? undefined : Buffer.alloc(0);
  let part: PartWriter | undefined;
  let partBytes = 0;
  let partRows = 0;
  let read = 0;

  async function startPart(): Promise<PartWriter> {
    const started = await openPart(folder, `${stem}.${files.length + 1}.${extension}`, isCompressed);
    part = started;
    await started.write(header ?? Buffer.alloc(0));
    partBytes = header?.length ?? 0;
    partRows = 0;
    return started;
  }

  try {
    if (header !== undefined) part = await startPart();
    for await (const { bytes, ends } of readRows(file, text)) {
      let segment = 0;
      let start = 0;
      for (const end of ends) {
        if (header === undefined) {
          header = Buffer.from(bytes.subarray(0, end));
          segment = end;
          start = end;
          part = await startPart();
          continue;
        }
        if (partRows > 0 && partBytes + (end - start) > partMaxBytes) {
          await part?.write(bytes.subarray(segment, start));
          if (part !== undefined) files.push(await part.finish(partRows));
          segment = start;
          part = await startPart();
        }
        partBytes += end - start;
        partRows += 1;
        start = end;
      }
      if (segment < bytes.length) await part?.write(bytes.subarray(segment));
      read += bytes.length;
      onProgress(read / fileBytes);
    }
    if (part !== undefined) files.push(await part.finish(partRows));
    return files;
  } catch (error) {
    await part?.abandon().catch(() => undefined);
    throw error;
  }
}

/** Makes a file the one file of a result: renamed, measured, durable. */
export async function keepSingleFile(file: string, rows: number, folder: string, name: string): Promise<ReportFile> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const block of createReadStream(file, { highWaterMark: blockBytes })) {
    hash.update(block as Buffer);
    bytes += (block as Buffer).length;
  }
  await rename(file, path.join(folder, name));
  await syncFile(path.join(folder, name));
  return { name, rows, bytes, sha256: hash.digest('hex') };
}
