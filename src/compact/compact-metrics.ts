import type { Clock } from '../runtime/clock.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Flushed } from './batch/flush.ts';
import { type StreamFault, faultExplanations } from './position/stream-position.ts';
import type { Sealed } from './seal/seal.ts';
import { boundedBy } from '../runtime/async/in-parallel.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import type { TableSize } from '../lake/log/table-state.ts';
import type { StreamReader, StreamState } from '../stream/stream.ts';

/** The compactor's metrics. They start at zero with the process; the lake's log has the totals. */
export interface CompactMetrics {
  flushed(flushed: Flushed, durationMs: number): void;
  sealed(sealed: Sealed, durationMs: number): void;
  streamFault(fault: StreamFault): void;
  /** Gives the gauge of how far the watermark is behind the clock; since now, while none is known. */
  followWatermark(clock: Clock, findMs: () => number | undefined): void;
}

const secondsBuckets = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Registers the compactor's metrics. */
export function createCompactMetrics(metrics: Metrics): CompactMetrics {
  const events = metrics.counter('compact_events_total', 'Events taken from the stream, by what became of them.', [
    'outcome',
  ]);
  const bytes = metrics.counter('compact_written_bytes_total', 'Bytes of Parquet written, by step.', ['step']);
  const flushes = metrics.counter('compact_flushes_total', 'Batches committed, by the way that they took.', ['way']);
  const flushSeconds = metrics.histogram(
    'compact_flush_seconds',
    'Time from a pulled batch to its commit and purge.',
    secondsBuckets,
  );
  const sealSeconds = metrics.histogram('compact_seal_seconds', 'Time of a seal.', secondsBuckets);
  const faults = metrics.counter('compact_stream_faults_total', 'Faults of the stream that began a new epoch.', [
    'fault',
  ]);
  // From zero on, so that the first of a kind is seen as a step.
  for (const outcome of ['stored', 'failed', 'repeat']) events.inc({ outcome }, 0);
  for (const step of ['flush', 'seal']) bytes.inc({ step }, 0);
  for (const way of ['straight', 'judged']) flushes.inc({ way }, 0);
  for (const fault of Object.keys(faultExplanations)) faults.inc({ fault }, 0);
  return {
    flushed(flushed, durationMs) {
      events.inc({ outcome: 'stored' }, flushed.rows);
      events.inc({ outcome: 'failed' }, flushed.failed);
      events.inc({ outcome: 'repeat' }, flushed.repeats);
      bytes.inc({ step: 'flush' }, flushed.sizeBytes);
      flushes.inc({ way: flushed.straight ? 'straight' : 'judged' });
      flushSeconds.observe(durationMs / 1000);
    },
    sealed(sealed, durationMs) {
      bytes.inc({ step: 'seal' }, sealed.sizeBytes);
      sealSeconds.observe(durationMs / 1000);
    },
    streamFault: (fault) => faults.inc({ fault }),
    followWatermark(clock, findMs) {
      const startedMs = clock.nowMs();
      metrics.readGauge(
        'compact_watermark_lag_seconds',
        'How far the watermark is behind the clock: what was acknowledged before it is in the lake.',
        () => (clock.nowMs() - (findMs() ?? startedMs)) / 1000,
      );
    },
  };
}

/** A broker that has not answered for so long is away, milliseconds: the process has other metrics to show. */
const answerMs = 500;

/** What followBacklog() looks at. */
interface BacklogDependencies {
  readonly reader: Pick<StreamReader, 'state' | 'findMessage'>;
  readonly clock: Clock;
  /** The lake's position in the stream. */
  readonly findEpoch: () => Epoch | undefined;
}

/** What of the stream is not in the lake yet. */
interface Backlog {
  readonly state: StreamState;
  readonly messages: number;
  /** Since when the oldest of them waits, seconds; 0 without any, undefined where it has just gone. */
  readonly oldestSeconds: number | undefined;
}

/**
 * Gives the gauges of the stream and of what of it is not in the lake yet. The broker is asked when somebody looks: one
 * question, and a second one while something waits. Without its answer they are left out.
 */
export function followBacklog(metrics: Metrics, { reader, clock, findEpoch }: BacklogDependencies): void {
  const lag = metrics.gauge('compact_lag_messages', 'Messages of the stream that are not in the lake yet.');
  const oldest = metrics.gauge(
    'compact_oldest_waiting_seconds',
    'For how long the oldest event that is not in the lake yet has waited for it; 0 without any.',
  );
  const bytes = metrics.gauge(
    'stream_bytes',
    'Bytes that the stream holds, up to the next purge also of what is in the lake.',
  );
  const maxBytes = metrics.gauge('stream_max_bytes', 'Bytes at which the stream is full, and imports are refused.');

  async function look(): Promise<Backlog> {
    const state = await reader.state();
    const epoch = findEpoch();
    // Of a stream that was made anew, the lake has nothing.
    const position = epoch?.streamId === state.id ? epoch.position : 0;
    const messages = Math.max(0, Math.min(state.messages, state.lastSequence - position));
    if (messages === 0) return { state, messages, oldestSeconds: 0 };
    const first = await reader.findMessage(Math.max(position + 1, state.firstSequence));
    const nowMs = state.clock?.toMs ?? clock.nowMs();
    const storedAtMs = first?.storedAtMs;
    return {
      state,
      messages,
      oldestSeconds: storedAtMs === undefined ? undefined : Math.max(0, nowMs - storedAtMs) / 1000,
    };
  }

  metrics.beforeRead(async () => {
    const backlog = await boundedBy(answerMs, look()).catch(() => undefined);
    for (const [gauge, value] of [
      [lag, backlog?.messages],
      [oldest, backlog?.oldestSeconds],
      [bytes, backlog?.state.bytes],
      [maxBytes, backlog?.state.maxBytes],
    ] as const) {
      if (value === undefined) gauge.remove();
      else gauge.set(value);
    }
  });
}

/** Gives the gauges of how large the lake's tables are, by what their logs say: no file is looked at. */
export function followTables(metrics: Metrics, sizes: () => ReadonlyMap<string, TableSize>): void {
  const rows = metrics.gauge('lake_rows', 'Rows of the lake, by table.', ['table']);
  const bytes = metrics.gauge('lake_bytes', 'Bytes of the data files of the lake, by table.', ['table']);
  const files = metrics.gauge('lake_files', 'Data files of the lake, by table; young ones wait to be sealed.', [
    'table',
    'state',
  ]);
  metrics.beforeRead(() => {
    for (const [table, size] of sizes()) {
      rows.set({ table }, size.rows);
      bytes.set({ table }, size.bytes);
      files.set({ table, state: 'young' }, size.youngFiles);
      files.set({ table, state: 'sealed' }, size.sealedFiles);
    }
  });
}
