import type { ReportFile } from '../../../reports/reports.ts';
import { fillFrom, type GrowingText } from './growing-text.ts';
import { openPart, type PartWriter } from './part-writer.ts';

/** What is read at a time: also what a member of gzip holds, as a rule. */
const blockBytes = 1024 * 1024;

/** The text that parts are made of. */
export interface TextRows {
  /** Of the uncompressed file, without the dot; a compressed one has `.gz` behind it. */
  readonly extension: string;
  /** The first row is a header, with which every part begins. */
  readonly hasHeader: boolean;
  /** Finds the ends (exclusive) of the rows in a buffer, which begins with a row; the last may end beyond it. */
  findRowEnds(buffer: Buffer): number[];
}

/**
 * How a text becomes parts. A part's bound is bytes before compression, header included; a single row larger than that
 * has a part of its own.
 */
export interface PartOptions {
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
async function* readRows(text: GrowingText, form: TextRows): AsyncGenerator<RowBlock> {
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
export async function writeParts(text: GrowingText, form: TextRows, options: PartOptions): Promise<ReportFile[]> {
  const { folder, stem, partMaxBytes, isCompressed, onRead } = options;
  const extension = isCompressed ? `${form.extension}.gz` : form.extension;
  const parts: PartWriter[] = [];
  const finished: Promise<ReportFile>[] = [];
  let header = form.hasHeader ? undefined : Buffer.alloc(0);
  let part: PartWriter | undefined;
  let partBytes = 0;
  let partRows = 0;
  let read = 0;

  async function startPart(): Promise<void> {
    part = await openPart(folder, `${stem}.${parts.length + 1}.${extension}`, isCompressed);
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
