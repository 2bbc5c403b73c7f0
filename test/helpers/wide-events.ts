import { eventLine } from './lake.ts';

export interface WideEvents {
  readonly rows: number;
  /** Bytes of parameters in each event. */
  readonly bytes: number;
}

/** A message as ingest publishes it under load. */
const messageBytes = 800_000;

/**
 * Publishes custom events of maximum size with repetitive text: a hundred thousand of them make a file of a few
 * megabytes.
 */
export function publishWideEvents(stream: { publishRaw(payload: string): number }, { rows, bytes }: WideEvents): void {
  const custom_event_params = Object.fromEntries(
    Array.from({ length: 10 }, (_, index) => [
      `param${index}`,
      'the quick brown fox '.repeat(bytes).slice(0, Math.floor(bytes / 10)),
    ]),
  );
  let payload = '';
  for (let row = 0; row < rows; row += 1) {
    payload += `${JSON.stringify(eventLine({ kind: 'custom_event', id_app: 1 + (row % 3), custom_event_name: 'wide', custom_event_params }))}\n`;
    if (payload.length < messageBytes && row < rows - 1) continue;
    stream.publishRaw(payload);
    payload = '';
  }
}
