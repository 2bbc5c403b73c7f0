import { openAppendedFile } from '../runtime/files/appended-file.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import {
  maxBodyBytes,
  type EventSource,
  type RejectedEvent,
  type SourceEvent,
  type InputPosition,
} from './event-source.ts';

/** Maximum events of a batch (docs/api.md#limits). */
export const maxBatchEvents = 20;

export interface ImportBatch {
  /** From 0, counted from the start of the input. */
  readonly number: number;
  /** Start of the next batch. */
  readonly next: InputPosition;
  readonly events: readonly SourceEvent[];
  /** Lines that are not events, and are not sent. */
  readonly rejected: readonly RejectedEvent[];
}

export function renderBody(events: readonly SourceEvent[]): string {
  return `[${events.map(({ json }) => json).join(',')}]`;
}

/**
 * Splits an input, from a position on, into batches that are limited by count and bytes. A batch depends only on the
 * input from its start: an import that resumes at the end of a batch continues with the same batches.
 */
export async function* cutBatches(
  source: EventSource,
  from: { readonly number: number; readonly place: InputPosition },
): AsyncGenerator<ImportBatch, void, void> {
  let number = from.number;
  let next = from.place;
  let events: SourceEvent[] = [];
  let rejected: RejectedEvent[] = [];
  let bytes = 2;
  const cutBatch = (): ImportBatch => {
    const batch = { number, next, events, rejected };
    [number, events, rejected, bytes] = [number + 1, [], [], 2];
    return batch;
  };
  for await (const item of source.items(from.place)) {
    if (item.event !== undefined) {
      const size = Buffer.byteLength(item.event.json) + 1;
      const isFull = events.length === maxBatchEvents || bytes + size - 1 > maxBodyBytes;
      if (events.length > 0 && isFull) yield cutBatch();
      events.push(item.event);
      bytes += size;
    } else if (item.rejected !== undefined) {
      rejected.push(item.rejected);
    }
    next = item.next;
    if (rejected.length >= maxBatchEvents) yield cutBatch();
  }
  if (events.length + rejected.length > 0) yield cutBatch();
}

/** Renders the line of a rejected event, whose JSON is copied byte for byte. */
export function renderRejected({ json, ...what }: RejectedEvent): string {
  const text = JSON.stringify(what);
  return json === undefined ? `${text}\n` : `${text.slice(0, -1)},"event":${json}}\n`;
}

/**
 * Truncates the file of rejected events to `atByte` bytes, appends lines and fsyncs the file, but not its folder. An
 * empty file is removed. Returns the length of the file.
 */
export async function writeRejected(file: string, lines: string, atByte: number): Promise<number> {
  if (lines === '' && atByte === 0) {
    await removeFile(file);
    return 0;
  }
  const rejectedFile = await openAppendedFile(file, atByte);
  try {
    await rejectedFile.append(lines);
    await rejectedFile.sync();
    return rejectedFile.bytes;
  } finally {
    await rejectedFile.close();
  }
}
