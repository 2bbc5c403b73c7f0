import { openAppendedFile } from '../runtime/files/appended-file.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import {
  maxBodyBytes,
  type EventSource,
  type RefusedEvent,
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
  readonly refused: readonly RefusedEvent[];
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
  let refused: RefusedEvent[] = [];
  let bytes = 2;
  const cut = (): ImportBatch => {
    const batch = { number, next, events, refused };
    [number, events, refused, bytes] = [number + 1, [], [], 2];
    return batch;
  };
  for await (const item of source.items(from.place)) {
    if (item.event !== undefined) {
      const size = Buffer.byteLength(item.event.json) + 1;
      const isFull = events.length === maxBatchEvents || bytes + size - 1 > maxBodyBytes;
      if (events.length > 0 && isFull) yield cut();
      events.push(item.event);
      bytes += size;
    } else if (item.refused !== undefined) {
      refused.push(item.refused);
    }
    next = item.next;
    if (refused.length >= maxBatchEvents) yield cut();
  }
  if (events.length + refused.length > 0) yield cut();
}

/** Renders the line of a rejected event, whose JSON is copied byte for byte. */
export function renderRefused({ json, ...what }: RefusedEvent): string {
  const text = JSON.stringify(what);
  return json === undefined ? `${text}\n` : `${text.slice(0, -1)},"event":${json}}\n`;
}

/**
 * Truncates the file of rejected events to `atByte` bytes, appends lines and fsyncs the file, but not its folder. An
 * empty file is removed. Returns the length of the file.
 */
export async function writeRefused(file: string, lines: string, atByte: number): Promise<number> {
  if (lines === '' && atByte === 0) {
    await removeFile(file);
    return 0;
  }
  const refused = await openAppendedFile(file, atByte);
  try {
    await refused.append(lines);
    await refused.sync();
    return refused.bytes;
  } finally {
    await refused.close();
  }
}
