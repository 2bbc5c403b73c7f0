import { createHash } from 'node:crypto';
import path from 'node:path';
import { promisify } from 'node:util';
import { constants, gzip } from 'node:zlib';
import type { TextFormat } from '../../../datasets/file-formats.ts';
import type { ReportFile } from '../../../reports/reports.ts';
import { removeFile } from '../../../runtime/files/durable-file.ts';
import { openNewFile } from '../../../runtime/files/open-file.ts';
import { fillFrom, type GrowingText } from './growing-text.ts';

const compress = promisify(gzip);

/** Members compressed at a time, on libuv's threads. */
const membersInFlight = 4;
/** Smaller pieces wait for the next one; larger ones are a gzip member each. Enough for all threads. */
const memberMinBytes = 512 * 1024;

/**
 * The fastest level with a window of 8 KiB: rows repeat what is a few rows away, and such a window fits the processor's
 * first cache. The chunk size gives one piece of output per member.
 */
const gzipOptions = { level: constants.Z_BEST_SPEED, windowBits: 13, memLevel: 9, chunkSize: 1024 * 1024 };

type PartWriter = Awaited<ReturnType<typeof openPart>>;

/** Opens a part: plain, or gzip members, which readers take as one stream. The same writes give the same bytes. */
async function openPart(folder: string, name: string, isCompressed: boolean) {
  const file = path.join(folder, name);
  const handle = await openNewFile(file);
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
    const joined = pending.length === 1 && pending[0] !== undefined ? pending[0] : Buffer.concat(pending);
    const member = isCompressed ? compress(joined, gzipOptions) : Promise.resolve(joined);
    // Awaited later, in order; an earlier failure must not be unhandled.
    member.catch(() => undefined);
    compressing.push(member);
    pending = [];
    pendingBytes = 0;
  }

  return {
    /** Adds bytes, which the caller must not change. */
    async write(data: Buffer): Promise<void> {
      pending.push(data);
      pendingBytes += data.length;
      if (pendingBytes < memberMinBytes) return;
      startMember();
      if (compressing.length >= membersInFlight) await store(compressing.shift());
    },
    /** Ends the part, durably. The next part need not wait for it. */
    async finish(rows: number): Promise<ReportFile> {
      // A file without a member is not a gzip file.
      if (pendingBytes > 0 || members === 0) startMember();
      while (compressing.length > 0) await store(compressing.shift());
      await handle.sync();
      await handle.close();
      return { name, rows, bytes, sha256: hash.digest('hex') };
    },
    async abandon(): Promise<void> {
      await Promise.allSettled(compressing);
      await handle.close().catch(() => undefined);
      await removeFile(file);
    },
  };
}

/** Bytes read at a time; usually a gzip member. */
const blockBytes = 1024 * 1024;

/** How a text is split. A part's limit is bytes before compression, header included; a larger single row is a part. */
interface PartOptions {
  readonly folder: string;
  readonly stem: string;
  readonly partMaxBytes: number;
  readonly isCompressed: boolean;
  readonly onRead: (bytes: number) => void;
}

/** Complete rows of a text, and where each ends. */
interface RowBlock {
  readonly bytes: Buffer;
  readonly ends: readonly number[];
}

/** Reads a text in blocks of complete rows, independent of its files. A long row makes a longer block. */
export async function* readRows(text: GrowingText, form: Pick<TextFormat, 'findRowEnds'>): AsyncGenerator<RowBlock> {
  try {
    let partialRow: Buffer = Buffer.alloc(0);
    for (let length = blockBytes; length === blockBytes;) {
      const block = Buffer.allocUnsafe(partialRow.length + blockBytes);
      partialRow.copy(block);
      length = await fillFrom(text, block.subarray(partialRow.length));
      const read = block.subarray(0, partialRow.length + length);
      const ends = form.findRowEnds(read);
      const last = ends.at(-1) ?? 0;
      if (last > 0) yield { bytes: read.subarray(0, last), ends };
      partialRow = read.subarray(last);
    }
    if (partialRow.length > 0) throw new Error('the result ends inside a row');
  } finally {
    await text.close();
  }
}

/**
 * Splits a text, while it is written, into parts of complete rows, each with its header. The same text gives the same
 * bytes. Parts are durable except for their folder. After an error none is left.
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

  /** Ends the part, which is synced while the next is written. */
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
