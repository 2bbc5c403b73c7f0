import type { Clock } from '../runtime/clock.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Flushed } from './batch/flush.ts';
import { faultExplanations, type StreamFault } from './position/stream-position.ts';
import type { Sealed } from './seal/seal.ts';

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
