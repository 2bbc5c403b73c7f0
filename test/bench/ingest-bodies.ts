import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { generateGameSessions } from '../../src/demo/game-sessions.ts';
import { maxBatchEvents, maxBodyBytes } from '../../src/ingest/required-ids.ts';

/** Requests of one kind that a load sends one after the other. */
export interface Bodies {
  readonly name: string;
  readonly method: string;
  readonly bodies: readonly string[];
  /** Average events and bytes of a request. */
  readonly events: number;
  readonly bytes: number;
}

const requests = 500;

/** Returns events of web clients: from the file in `TRIBUTARY_SAMPLE_EVENTS` if it is set, otherwise generated. */
export function readEvents(count: number): { readonly source: string; readonly events: readonly unknown[] } {
  const sample = process.env['TRIBUTARY_SAMPLE_EVENTS'] ?? '';
  if (!existsSync(sample))
    return {
      source: 'generated',
      events: [...generateGameSessions({ seed: 1, events: count, until: 1_700_000_000, days: 1 })],
    };
  const bytes = readFileSync(sample);
  const lines = (sample.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8').trim().split('\n');
  // Taken from the whole file, so that no single session dominates.
  const step = Math.max(1, Math.floor(lines.length / count));
  return {
    source: 'real',
    events: lines.flatMap((line, index): unknown[] => (index % step === 0 ? [JSON.parse(line)] : [])),
  };
}

function describeBodies(name: string, method: string, bodies: readonly string[], events: number): Bodies {
  const bytes = bodies.reduce((sum, body) => sum + Buffer.byteLength(body), 0) / bodies.length;
  return { name, method, bodies, events: events / bodies.length, bytes: Math.round(bytes) };
}

/** Creates single events, and batches of the maximum size. */
export function makeBodies(): readonly Bodies[] {
  const { source, events } = readEvents(requests * maxBatchEvents);
  const singles = events.slice(0, requests).map((event) => JSON.stringify(event));
  const batches: string[] = [];
  let batched = 0;
  for (let next = 0; batches.length < requests && next < events.length; next = batched) {
    const batch = events.slice(next, next + maxBatchEvents);
    while (Buffer.byteLength(JSON.stringify(batch)) > maxBodyBytes) batch.pop();
    batches.push(JSON.stringify(batch));
    batched += batch.length;
  }
  return [
    describeBodies(`single events, ${source}`, 'customEvent', singles, singles.length),
    describeBodies(`batches, ${source}`, 'customEventBatch', batches, batched),
  ];
}
