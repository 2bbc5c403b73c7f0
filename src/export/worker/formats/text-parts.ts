import { createHash } from 'node:crypto';
import { open, rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import type { TextFormat } from '../../../datasets/file-formats.ts';
import type { ReportFile } from '../../../reports/reports.ts';
import { fillFrom, type GrowingText } from './growing-text.ts';

const compress = promisify(gzip);

/** Members being compressed at once, on libuv's threads. */
const membersInFlight = 4;
/**
 * What is written to a part in one piece is a member of its own, unless it is smaller than this: then it waits for the
 * next. Large enough to compress well, small enough to keep every thread busy.
 */
const memberMinBytes = 512 * 1024;

/**
 * The fastest level, with a window of 8 KiB: what rows repeat is a few rows away, and a window that the processor's
 * first cache holds is searched faster. The output comes in one piece, as a rule: one turn of the loop a member.
 */
const gzipOptions = { level: constants.Z_BEST_SPEED, windowBits: 13, memLevel: 9, chunkSize: 1024 * 1024 };

/**
 * A part being written: plain, or gzip members one after the other, which every reader takes for one stream.
 */
interface PartWriter {
  /** Adds bytes, which it keeps until they are written. */
  write(bytes: Buffer): Promise<void>;
  /** Ends the part; it is durable then. Nothing else of it has to be waited for before the next part. */
  finish(rows: number): Promise<ReportFile>;
  /** Closes and removes a part that is not wanted. */
  abandon(): Promise<void>;
}

/** Opens a new part in a folder. The same writes give the same bytes. */
async function openPart(folder: string, name: string, isCompressed: boolean): Promise<PartWriter> {
  const file = path.join(folder, name);
  const handle = await open(file, 'wx', 0o600);
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
    const whole = pending.length === 1 && pending[0] !== undefined ? pending[0] : Buffer.concat(pending);
    const member = isCompressed ? compress(whole, gzipOptions) : Promise.resolve(whole);
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
      if (pendingBytes < memberMinBytes) return;
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
      await handle.close().catch(() => undefined);
      await rm(file, { force: true });
    },
  };
}

/** What is read at a time: also what a member of gzip holds, as a rule. */
const blockBytes = 1024 * 1024;

/**
 * How a text becomes parts. A part's bound is bytes before compression, header included; a single row larger than that
 * has a part of its own.
 */
interface PartOptions {
  /** Where they go. */
  readonly folder: string;
  /** Beginning of each file name. */
  readonly stem: string;
  readonly partMaxBytes: number;
  readonly isCompressed: boolean;
  /** Gets how many bytes of the text are done. */
  readonly onRead: (bytes: number) => void;
}

/** Whole rows of a text, one after the other, and where each of them ends. */
interface RowBlock {
  readonly bytes: Buffer;
  readonly ends: readonly number[];
}

/**
 * Reads a text in blocks of whole rows, the same whatever files it lies in. A row longer than the usual block makes a
 * longer one.
 */
async function* readRows(text: GrowingText, form: TextFormat): AsyncGenerator<RowBlock> {
  try {
    let rest: Buffer = Buffer.alloc(0);
    for (let length = blockBytes; length === blockBytes;) {
      const block = Buffer.allocUnsafe(rest.length + blockBytes);
      rest.copy(block);
      length = await fillFrom(text, block.subarray(rest.length));
      const read = block.subarray(0, rest.length + length);
      const ends = form.findRowEnds(read);
      const last = ends.at(-1) ?? 0;
      if (last > 0) yield { bytes: read.subarray(0, last), ends };
      rest = read.subarray(last);
    }
    if (rest.length > 0) throw new Error('the result ends inside a row');
  } finally {
    await text.close();
  }
}

/**
 * Splits a text, while it is written, into parts that each begin with its header, if it has one, cutting between rows
 * only. The same text gives the same bytes. Every part is durable; the folder's own entries are the caller's to sync.
 * After an error no part is left.
 */
export async function writeParts(text: GrowingText, form: TextFormat, options: PartOptions): Promise<ReportFile[]> {
  const { folder, stem, partMaxBytes, isCompressed, onRead } = options;
  const ending = `${form.endings[0]}${isCompressed ? '.gz' : ''}`;
  const parts: PartWriter[] = [];
  const finished: Promise<ReportFile>[] = [];
  let header = form.hasHeader ? undefined : Buffer.alloc(0);
  let part: PartWriter | undefined;
  let partBytes = 0;
  let partRows = 0;
  let read = 0;

  async function startPart(): Promise<void> {
    part = await openPart(folder, `${stem}.${parts.length + 1}${ending}`, isCompressed);
    parts.push(part);
    if (header !== undefined) await part.write(header);
    partBytes = header?.length ?? 0;
    partRows = 0;
  }

  /** Ends the part. It reaches the disk while the next is written. */
  function endPart(): void {
    const ended = part?.finish(partRows);
    if (ended === undefined) return;
    ended.catch(() => undefined);
    finished.push(ended);
  }

  async function addRows({ bytes, ends }: RowBlock): Promise<void> {
    let written = 0;
    let start = 0;
    for (const end of ends) {
      if (header === undefined) {
        header = Buffer.from(bytes.subarray(0, end));
        await startPart();
        written = end;
      } else {
        if (partRows > 0 && partBytes + (end - start) > partMaxBytes) {
          await part?.write(bytes.subarray(written, start));
          endPart();
          await startPart();
          written = start;
        }
        partBytes += end - start;
        partRows += 1;
      }
      start = end;
    }
    if (written < bytes.length) await part?.write(bytes.subarray(written));
  }

  try {
    if (header !== undefined) await startPart();
    for await (const block of readRows(text, form)) {
      await addRows(block);
      read += block.bytes.length;
      onRead(read);
    }
    endPart();
    return await Promise.all(finished);
  } catch (error) {
    await Promise.allSettled(finished);
    for (const opened of parts) await opened.abandon().catch(() => undefined);
    throw error;
  }
}
