import { ApiError, openApi } from '../shell/client.ts';
import { pause } from '../components/load.ts';

/** A message of the stream: an event, a rejected request, or a number of omitted ones. */
export interface Arrival {
  readonly name: 'event' | 'refusal' | 'dropped';
  readonly data: Readonly<Record<string, unknown>>;
}

/** State of the connection; `waiting` reconnects automatically, `refused` does not. */
export type ConnectionState =
  | { readonly kind: 'connecting' }
  | { readonly kind: 'listening' }
  | { readonly kind: 'waiting'; readonly why: string }
  | { readonly kind: 'refused'; readonly why: string };

const retryMs = 2000;
/** Timeout without data, ms: the service sends a heartbeat every ten seconds. */
const maxSilenceMs = 35_000;
const names = ['event', 'refusal', 'dropped'] as const;

/** Parses a block of an event stream; undefined for comments and unknown events. */
export function parseBlock(block: string): Arrival | undefined {
  const lines = block.split('\n');
  const [given] = lines.flatMap((line) => (line.startsWith('event:') ? [line.slice(6).trim()] : []));
  const name = names.find((one) => one === given);
  const data = lines.flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : [])).join('\n');
  if (name === undefined || data === '') return undefined;
  try {
    return { name, data: JSON.parse(data) as Arrival['data'] };
  } catch {
    return undefined;
  }
}

async function readStream(response: Response, onArrival: (arrival: Arrival) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const startSilence = () => setTimeout(() => void reader?.cancel().catch(() => undefined), maxSilenceMs);
  let silence = startSilence();
  let text = '';
  try {
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      if (done || value === undefined) return;
      clearTimeout(silence);
      silence = startSilence();
      const blocks = (text + value.replaceAll('\r', '')).split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const arrival = parseBlock(block);
        if (arrival !== undefined) onArrival(arrival);
      }
    }
  } finally {
    clearTimeout(silence);
  }
}

/** Streams an app's events until the signal aborts; reconnects after an interruption. */
export async function listen(
  idApp: string,
  signal: AbortSignal,
  onArrival: (arrival: Arrival) => void,
  onStanding: (connectionState: ConnectionState) => void,
): Promise<void> {
  while (!signal.aborted) {
    let why = 'The connection was closed.';
    let waitMs = retryMs;
    onStanding({ kind: 'connecting' });
    try {
      const response = await openApi('/api/app/v1/live', { callArguments: { idApp }, signal });
      onStanding({ kind: 'listening' });
      await readStream(response, onArrival);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError) {
        why = error.message;
        if (!error.mayPass) return onStanding({ kind: 'refused', why });
        waitMs = Math.max(retryMs, (error.waitSeconds ?? 0) * 1000);
      }
    }
    onStanding({ kind: 'waiting', why });
    await pause(waitMs, signal);
  }
}
