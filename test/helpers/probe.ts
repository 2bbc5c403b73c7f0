import { setTimeout as sleep } from 'node:timers/promises';
import { idParam, type Ledger } from './ledger.ts';

/** A response of the import area as its client saw it. */
export interface ProbeAnswer {
  /** 0 without a response. */
  readonly status: number;
  readonly tookMs: number;
  /** Time of the response, on the monotonic clock. */
  readonly atMs: number;
  readonly retryAfter: string | null;
  readonly detail: string | null;
}

/** A client that sends events slowly, one after the other, and records each response. */
export interface Probe {
  readonly answers: readonly ProbeAnswer[];
  stop(): Promise<void>;
}

const betweenMs = 20;
const patienceMs = 10_000;

/**
 * Starts the client. The response decides the ledger's outcome: 200 acknowledged; 500 with "not stored" rejected, so
 * that it must not be in the lake; 500 with "unknown" unknown.
 */
export function startProbe(
  ledger: Ledger,
  options: { readonly s2s: () => string; readonly idApp: number; readonly token: string },
): Probe {
  const answers: ProbeAnswer[] = [];
  const stopping = new AbortController();
  async function ask(): Promise<void> {
    const id = ledger.nextId();
    const startedMs = performance.now();
    const response = await fetch(`${options.s2s()}/v1/customEvent/?idApp=${options.idApp}`, {
      method: 'POST',
      headers: { authorization: options.token },
      body: JSON.stringify({ customEventName: id, customUserId: 'probe', customEventParams: { [idParam]: id } }),
      signal: AbortSignal.timeout(patienceMs),
    }).catch(() => undefined);
    await response?.arrayBuffer().catch(() => undefined);
    const detail = response?.headers.get('x-error-detail') ?? null;
    const status = response?.status ?? 0;
    answers.push({
      status,
      tookMs: performance.now() - startedMs,
      atMs: performance.now(),
      retryAfter: response?.headers.get('retry-after') ?? null,
      detail,
    });
    if (status === 200) ledger.record([id], 'acknowledged');
    else if (detail?.startsWith('not stored') === true) ledger.record([id], 'refused');
  }
  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      await ask();
      await sleep(betweenMs);
    }
  }
  const running = run();
  return {
    answers,
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
