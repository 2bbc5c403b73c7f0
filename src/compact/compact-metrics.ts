import type { Clock } from '../runtime/clock.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Flushed } from './batch/flush.ts';
import { type StreamFault, faultExplanations } from './position/stream-position.ts';
import { boundedBy } from '../runtime/async/in-parallel.ts';
import type { Epoch } from '../lake/log/lake-state.ts';
import type { TableSize } from '../lake/log/table-state.ts';
import type { StreamReader } from '../stream/stream.ts';

const secondsBuckets = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

export type CompactMetrics = ReturnType<typeof createCompactMetrics>;

export function createCompactMetrics(metrics: Metrics) {
  const events = metrics.counter('compact_events_total', 'Events taken from the stream, by what became of them.', [
    'outcome',
  ]);
  const bytes = metrics.counter('compact_written_bytes_total', 'Bytes of Parquet written, by step.', ['step']);
  const flushes = metrics.counter('compact_flushes_total', 'Batches committed, by path: direct or staged.', ['path']);
  const flushSeconds = metrics.histogram(
    'compact_flush_seconds',
    'Time from a pulled batch to its commit and purge.',
    secondsBuckets,
  );
  const sealSeconds = metrics.histogram('compact_seal_seconds', 'Time of a seal.', secondsBuckets);
  const faults = metrics.counter('compact_stream_faults_total', 'Faults of the stream that began a new epoch.', [
    'fault',
  ]);
  // From zero, so that a rate shows the first of a kind.
  for (const outcome of ['stored', 'failed', 'repeat']) events.inc({ outcome }, 0);
  for (const step of ['flush', 'seal']) bytes.inc({ step }, 0);
  for (const path of ['direct', 'staged']) flushes.inc({ path }, 0);
  for (const fault of Object.keys(faultExplanations)) faults.inc({ fault }, 0);
  return {
    flushed(flushed: Flushed, durationMs: number): void {
      events.inc({ outcome: 'stored' }, flushed.rows);
      events.inc({ outcome: 'failed' }, flushed.failed);
      events.inc({ outcome: 'repeat' }, flushed.repeats);
      bytes.inc({ step: 'flush' }, flushed.sizeBytes);
      flushes.inc({ path: flushed.straight ? 'direct' : 'staged' });
      flushSeconds.observe(durationMs / 1000);
    },
    sealed(sealed: { readonly sizeBytes: number }, durationMs: number): void {
      bytes.inc({ step: 'seal' }, sealed.sizeBytes);
      sealSeconds.observe(durationMs / 1000);
    },
    streamFault: (fault: StreamFault): void => faults.inc({ fault }),
    /** Adds the gauge of the watermark's lag, counted from now while no watermark is known. */
    followWatermark(clock: Clock, findMs: () => number | undefined): void {
      const startedMs = clock.nowMs();
      metrics.readGauge(
        'compact_watermark_lag_seconds',
        'How far the watermark is behind the clock: what was acknowledged before it is in the lake.',
        () => (clock.nowMs() - (findMs() ?? startedMs)) / 1000,
      );
    },
  };
}

/** Limits how long a scrape waits for the broker, ms. */
const answerMs = 500;

interface BacklogDependencies {
  readonly reader: Pick<StreamReader, 'state' | 'findMessage'>;
  readonly clock: Clock;
  readonly findEpoch: () => Epoch | undefined;
}

/**
 * Adds the gauges of the stream and of its backlog. A scrape asks the broker once, and twice if messages wait. Without
 * a response the gauges are left out.
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

  async function look() {
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

/** Adds the gauges of the size of each table, from its log. */
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
