import type { Clock } from '../runtime/clock.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Flushed } from './batch/flush.ts';
import { type StreamFault, faultExplanations } from './position/stream-position.ts';
import { withTimeout } from '../runtime/async/in-parallel.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import type { TableSize } from '../lake/log/table-state.ts';
import type { StreamReader } from '../stream/stream.ts';

const secondsBuckets = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export type CompactMetrics = ReturnType<typeof createCompactMetrics>;

export function createCompactMetrics(metrics: Metrics) {
  const events = metrics.counter('compact_events_total', 'Events read from the stream, by result.', ['outcome']);
  const bytes = metrics.counter(
    'compact_written_bytes_total',
    'Bytes of Parquet files that flushes, seals and merges wrote.',
    ['step'],
  );
  const flushes = metrics.counter('compact_flushes_total', 'Batches committed, by path: direct or staged.', ['path']);
  const flushSeconds = metrics.histogram(
    'compact_flush_seconds',
    'Time from reading a batch to its commit and purge.',
    secondsBuckets,
  );
  const sealSeconds = metrics.histogram('compact_seal_seconds', 'Duration of a seal.', secondsBuckets);
  const faults = metrics.counter('compact_stream_faults_total', 'Stream faults, each of which started a new epoch.', [
    'fault',
  ]);
  // Starts at zero, so that rate() sees the first increment.
  for (const outcome of ['stored', 'failed', 'repeat']) events.inc({ outcome }, 0);
  for (const step of ['flush', 'seal', 'merge']) bytes.inc({ step }, 0);
  for (const path of ['direct', 'staged']) flushes.inc({ path }, 0);
  for (const fault of Object.keys(faultExplanations)) faults.inc({ fault }, 0);
  return {
    flushed(flushed: Flushed, durationMs: number): void {
      events.inc({ outcome: 'stored' }, flushed.rows);
      events.inc({ outcome: 'failed' }, flushed.failed);
      events.inc({ outcome: 'repeat' }, flushed.repeats);
      bytes.inc({ step: 'flush' }, flushed.sizeBytes);
      flushes.inc({ path: flushed.isDirect ? 'direct' : 'staged' });
      flushSeconds.observe(durationMs / 1000);
    },
    sealed(sealed: { readonly sizeBytes: number }, durationMs: number): void {
      bytes.inc({ step: 'seal' }, sealed.sizeBytes);
      sealSeconds.observe(durationMs / 1000);
    },
    merged: ({ sizeBytes }: { readonly sizeBytes: number }): void => bytes.inc({ step: 'merge' }, sizeBytes),
    streamFault: (fault: StreamFault): void => faults.inc({ fault }),
    /** Adds the gauge of the watermark's lag, counted from now while no watermark is known. */
    followWatermark(clock: Clock, findMs: () => number | undefined): void {
      const startedMs = clock.nowMs();
      metrics.readGauge(
        'compact_watermark_lag_seconds',
        'Age of the watermark; without one, time since the compactor started.',
        () => (clock.nowMs() - (findMs() ?? startedMs)) / 1000,
      );
    },
  };
}

/** Longest wait of a scrape for the broker, ms. */
const answerMs = 500;

interface BacklogDependencies {
  readonly reader: Pick<StreamReader, 'state' | 'findMessage'>;
  readonly clock: Clock;
  readonly findEpoch: () => Epoch | undefined;
}

/** Adds the gauges of the stream and of its backlog. Without a response of the broker they are left out. */
export function registerBacklogGauges(metrics: Metrics, { reader, clock, findEpoch }: BacklogDependencies): void {
  const lag = metrics.gauge(
    'compact_lag_messages',
    'Messages of the stream that are not in the lake yet. A message has the events of one or more requests.',
  );
  const oldest = metrics.gauge(
    'compact_oldest_waiting_seconds',
    'Age of the oldest message that is not in the lake yet; 0 without any.',
  );
  const bytes = metrics.gauge(
    'stream_bytes',
    'Size of the stream. Until the next purge, it includes events that are already in the lake.',
  );
  const maxBytes = metrics.gauge('stream_max_bytes', 'Size limit of the stream. Imports beyond it are rejected.');

  async function readBacklog() {
    const state = await reader.state();
    const epoch = findEpoch();
    // The lake has nothing of a stream that was created again.
    const position = epoch?.streamId === state.id ? epoch.position : 0;
    const messages = Math.max(0, Math.min(state.messages, state.lastSequence - position));
    if (messages === 0) return { state, messages, oldestSeconds: 0 };
    const first = await reader.findMessage(Math.max(position + 1, state.firstSequence));
    if (first?.storedAtMs === undefined) return { state, messages, oldestSeconds: undefined };
    const waitedMs = (state.clock?.toMs ?? clock.nowMs()) - first.storedAtMs;
    return { state, messages, oldestSeconds: Math.max(0, waitedMs) / 1000 };
  }

  metrics.beforeRead(async () => {
    const backlog = await withTimeout(answerMs, readBacklog()).catch(() => undefined);
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

export function registerTableGauges(metrics: Metrics, sizes: () => ReadonlyMap<string, TableSize>): void {
  const rows = metrics.gauge('lake_rows', 'Rows of a table.', ['table']);
  const bytes = metrics.gauge('lake_bytes', 'Size of the data files of a table.', ['table']);
  const files = metrics.gauge('lake_files', 'Data files of a table. Young files are not sealed yet.', [
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
