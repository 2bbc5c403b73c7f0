import { openAppendedFile } from '../runtime/files/appended-file.ts';
import { removeFile } from '../runtime/files/durable-file.ts';
import { maxBodyBytes, type EventSource, type RefusedEvent, type SourceEvent } from './event-source.ts';
import type { Place } from './records.ts';

/** service.md 2.3: elements of a batch. */
export const maxBatchEvents = 20;

/** What goes over the wire together, and what stands between it and the batch before. */
export interface Batch {
  /** From 0, from the start of the input on. */
  readonly number: number;
  /** Where the next batch begins. */
  readonly next: Place;
  readonly events: readonly SourceEvent[];
  /** Lines that are no event, and are not sent. */
  readonly refused: readonly RefusedEvent[];
}

/** The body of events. */
export function renderBody(events: readonly SourceEvent[]): string {
  return `[${events.map(({ json }) => json).join(',')}]`;
}

/**
 * Cuts an input from a place on, by count and by bytes. A cut depends on nothing but what the input has from there on:
 * who goes on from the end of a batch gets the batches that would have come.
 */
export async function* cutBatches(
  source: EventSource,
  from: { readonly number: number; readonly place: Place },
): AsyncGenerator<Batch, void, void> {
  let number = from.number;
  let next = from.place;
  let events: SourceEvent[] = [];
  let refused: RefusedEvent[] = [];
  let bytes = 2;
  const cut = (): Batch => {
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

/** The line of a refused event: the event is in it byte for byte as it was sent. */
export function renderRefused({ json, ...what }: RefusedEvent): string {
  const text = JSON.stringify(what);
  return json === undefined ? `${text}\n` : `${text.slice(0, -1)},"event":${json}}\n`;
}

/**
 * Writes lines to a file of refused events behind its first bytes, and makes them survive a power cut; its name does once
 * the caller has synced the folder. A file that has nothing is none. Returns its length.
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
