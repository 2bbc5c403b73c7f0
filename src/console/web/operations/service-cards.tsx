import { useEffect, useState } from 'preact/hooks';
import { callApi, type AnswerOf } from '../shell/client.ts';
import { formatBytes, formatCount, formatShare, formatTime } from '../components/format.ts';
import { Card, DefinitionList, Note, Table } from '../components/layout.tsx';
import { useLoaded, type Loaded } from '../components/load.ts';

export type Status = AnswerOf<'/api/operations/v1/status.json'>;
export type Process = Status['processes'][number];
export type Problem = Status['problems'][number];

/** Rates at one time (Unix seconds). */
export interface Sample {
  readonly at: number;
  readonly events: number;
  readonly refusals: number;
}

const everyMs = 3000;
/** Maximum number of samples: ten minutes. */
const maxSamples = 200;

const refusalsOf = (refused: Readonly<Record<string, number>>): number =>
  Object.values(refused).reduce((sum, count) => sum + count, 0);

/** Returns the rates per second between two states. A restarted process counts from its start. */
function toSample(before: Status, now: Status): Sample | undefined {
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

/** Age from which a status says nothing about now, ms: three refreshes, or a hidden page. */
const maxAgeMs = 10_000;

interface Watched {
  /** When the status arrived, Unix ms. */
  readonly receivedMs: number;
  readonly status: Status;
  readonly samples: readonly Sample[];
}

/** Loads the status every few seconds while the page is visible. */
export function useStatus(): Loaded<Watched> {
  return useLoaded(
    (() => {
      let last: Status | undefined;
      let samples: readonly Sample[] = [];
      return async (signal: AbortSignal): Promise<Watched> => {
        const status = await callApi('/api/operations/v1/status.json', { signal });
        const sample = last && toSample(last, status);
        if (sample !== undefined) samples = [...samples, sample].slice(-maxSamples);
        last = status;
        return { status, samples, receivedMs: Date.now() };
      };
    })(),
    [],
    () => everyMs,
  );
}

/** Reports whether data is too old to show as the current state; it changes without a response. */
export function useIsOld(receivedMs: number | undefined): boolean {
  const [nowMs, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return receivedMs !== undefined && Math.max(nowMs, Date.now()) - receivedMs > maxAgeMs;
}

/** Returns the rejected requests of all processes by reason, the most frequent first. */
function sumRefusals({ ingest }: Status): { readonly reason: string; readonly requests: number }[] {
  const sums = new Map<string, number>();
  for (const { refused } of ingest)
    for (const [reason, requests] of Object.entries(refused)) sums.set(reason, (sums.get(reason) ?? 0) + requests);
  return [...sums]
    .map(([reason, requests]) => ({ reason, requests }))
    .toSorted((a, b) => b.requests - a.requests || (a.reason < b.reason ? -1 : 1));
}

const tones = { running: 'good', starting: 'busy', waiting: 'bad', stopped: 'warn' } as const;
const words = { running: 'running', starting: 'starting', waiting: 'down', stopped: 'stopped' } as const;

/** Lists the processes. `isOld`: the service is not reachable now. */
export function ProcessesCard({
  processes,
  isOld,
}: {
  readonly processes: readonly Process[];
  readonly isOld: boolean;
}) {
  return (
    <Card id="processes" title="Processes">
      <Table
        label="Processes and their restarts"
        columns={[
          [
            'Process',
            ({ name, lastError }) => (
              <>
                {name}
                {lastError !== undefined && <div class="muted small">{lastError}</div>}
              </>
            ),
          ],
          ['State', ({ state }) => <span class={`badge ${isOld ? '' : tones[state]}`}>{words[state]}</span>],
          ['Restarts', ({ restarts }) => formatCount(restarts), 'number'],
        ]}
        rows={processes}
        keyOf={({ name, pid }) => `${name} ${pid}`}
      />
    </Card>
  );
}

export function DisksCard({ status: { disks, diskReserveBytes } }: { readonly status: Status }) {
  return (
    <Card id="disks" title="Disks">
      <ul class="stack">
        {disks.map(({ holds, freeBytes, totalBytes }) => {
          const isLow = freeBytes < diskReserveBytes * 2;
          const used = totalBytes === 0 ? 0 : 1 - freeBytes / totalBytes;
          return (
            <li key={holds.join()}>
              <div class="spread">
                <span>{holds.join(', ')}</span>
                <span class={isLow ? 'problem' : 'muted small'}>
                  {formatBytes(freeBytes)} free of {formatBytes(totalBytes)}, {formatShare(used)} used
                </span>
              </div>
              <span class={`share-bar whole${isLow ? ' low' : ''}`} aria-hidden="true">
                <span style={{ width: `${used * 100}%` }} />
              </span>
            </li>
          );
        })}
      </ul>
      <Note>Imports are rejected below {formatBytes(diskReserveBytes)} of free space.</Note>
    </Card>
  );
}

export function RefusalsCard({ status }: { readonly status: Status }) {
  const refusals = sumRefusals(status);
  return (
    <Card id="refusals" title="Rejected requests since the last start">
      {refusals.length === 0 ? (
        <p class="muted">No rejected requests.</p>
      ) : (
        <DefinitionList
          of={refusals.map(({ reason, requests }) => [reason.replaceAll('_', ' '), formatCount(requests)] as const)}
        />
      )}
    </Card>
  );
}

export function WarningsCard({ warnings }: { readonly warnings: readonly Problem[] }) {
  return (
    <Card id="warnings" title="Warnings">
      {warnings.length === 0 ? (
        <p class="muted">No warnings.</p>
      ) : (
        <ul class="stack">
          {warnings.map(({ code, subject = '', message, action, since }) => (
            <li key={`${code} ${subject}`}>
              <p>{message}</p>
              <p class="muted small">
                {action}
                {since !== undefined && ` Since ${formatTime(Date.parse(since) / 1000)}.`}
              </p>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
