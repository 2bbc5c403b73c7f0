import { callApi, type AnswerOf } from '../frame/client.ts';
import { useLoaded, type Loaded } from '../parts/load.ts';

/** How the service is. */
export type Status = AnswerOf<'/api/operations/v1/status.json'>;
export type Process = Status['processes'][number];
/** Something to be looked at, and what to do about it. */
export type Problem = Status['problems'][number];

/** Rates at one moment. */
export interface Sample {
  /** Unix seconds. */
  readonly at: number;
  readonly events: number;
  readonly refusals: number;
}

const everyMs = 3000;
/** Samples of a page: ten minutes. */
const mostSamples = 200;

const refusalsOf = (refused: Readonly<Record<string, number>>): number =>
  Object.values(refused).reduce((sum, count) => sum + count, 0);

/** What was counted between two looks, each second. A process that began anew in between counts from its start. */
export function toSample(before: Status, now: Status): Sample | undefined {
  const seconds = (Date.parse(now.at) - Date.parse(before.at)) / 1000;
  if (seconds <= 0) return undefined;
  let [events, refusals] = [0, 0];
  for (const { process, pid, events: counted, refused } of now.ingest) {
    const earlier = before.ingest.find((other) => other.process === process && other.pid === pid);
    events += counted - (earlier?.events ?? 0);
    refusals += refusalsOf(refused) - refusalsOf(earlier?.refused ?? {});
  }
  return {
    at: Date.parse(now.at) / 1000,
    events: Math.max(0, events) / seconds,
    refusals: Math.max(0, refusals) / seconds,
  };
}

export interface Watched {
  readonly status: Status;
  readonly samples: readonly Sample[];
}

/** Looks at the service every few seconds while the page can be seen. */
export function useStatus(): Loaded<Watched> {
  return useLoaded(
    (() => {
      let last: Status | undefined;
      let samples: readonly Sample[] = [];
      return async (signal: AbortSignal): Promise<Watched> => {
        const status = await callApi('/api/operations/v1/status.json', { signal });
        const sample = last && toSample(last, status);
        if (sample !== undefined) samples = [...samples, sample].slice(-mostSamples);
        last = status;
        return { status, samples };
      };
    })(),
    [],
    () => everyMs,
  );
}

/** The refusals of all processes since their start, by reason, the most frequent first. */
export function sumRefusals({ ingest }: Status): { readonly reason: string; readonly requests: number }[] {
  const sums = new Map<string, number>();
  for (const { refused } of ingest)
    for (const [reason, requests] of Object.entries(refused)) sums.set(reason, (sums.get(reason) ?? 0) + requests);
  return [...sums]
    .map(([reason, requests]) => ({ reason, requests }))
    .toSorted((a, b) => b.requests - a.requests || (a.reason < b.reason ? -1 : 1));
}
