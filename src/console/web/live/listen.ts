import { ApiError, openApi } from '../frame/client.ts';
import { pause } from '../parts/load.ts';

/** What arrives: an event, a refusal, or how many were left out. */
export interface Arrival {
  readonly name: 'event' | 'refusal' | 'left_out';
  readonly data: Readonly<Record<string, unknown>>;
}

/** How listening stands. */
export type Standing =
  | { readonly kind: 'connecting' }
  | { readonly kind: 'listening' }
  /** It goes on by itself. */
  | { readonly kind: 'waiting'; readonly why: string }
  /** It does not. */
  | { readonly kind: 'refused'; readonly why: string };

const retryMs = 2000;
/** The service shows every ten seconds that it is there: without that the connection is dead, and nobody says so. */
const longestSilenceMs = 35_000;
const names = ['event', 'refusal', 'left_out'];

/** Reads a block of an event stream; undefined where it is a comment, or none of ours. */
export function parseBlock(block: string): Arrival | undefined {
  const lines = block.split('\n');
  const name =
    lines
      .find((line) => line.startsWith('event:'))
      ?.slice(6)
      .trim() ?? '';
  const data = lines.flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : [])).join('\n');
  if (!names.includes(name) || data === '') return undefined;
  try {
    return { name: name as Arrival['name'], data: JSON.parse(data) as Arrival['data'] };
  } catch {
    return undefined;
  }
}

async function readStream(response: Response, onArrival: (arrival: Arrival) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const startSilence = () => setTimeout(() => void reader?.cancel().catch(() => undefined), longestSilenceMs);
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

/** Whether the same may be answered otherwise later. */
const mayPass = (error: unknown): boolean => !(error instanceof ApiError) || error.mayPass;

/** Listens to an app until the signal says so; comes back where it was cut off. */
export async function listen(
  idApp: string,
  signal: AbortSignal,
  onArrival: (arrival: Arrival) => void,
  onStanding: (standing: Standing) => void,
): Promise<void> {
  while (!signal.aborted) {
    let why = 'The connection has ended.';
    let waitMs = retryMs;
    onStanding({ kind: 'connecting' });
    try {
      const response = await openApi('/api/app/v1/live', { given: { idApp }, signal });
      onStanding({ kind: 'listening' });
      await readStream(response, onArrival);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError) why = error.message;
      if (!mayPass(error)) return onStanding({ kind: 'refused', why });
      if (error instanceof ApiError) waitMs = Math.max(retryMs, (error.waitSeconds ?? 0) * 1000);
    }
    onStanding({ kind: 'waiting', why });
    await pause(waitMs, signal);
  }
}
