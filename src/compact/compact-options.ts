import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Tracing } from '../runtime/tracing/tracing.ts';
import type { Enrichment } from '../enrichment/enrichment.ts';
import type { RefusalFolder } from '../refusals/refusal-files.ts';
import type { AgeRules } from '../lake/expiry/age-rules.ts';
import type { StreamReader } from '../stream/stream.ts';

export interface CompactDependencies {
  readonly reader: StreamReader;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly crashPoint?: CrashPoint;
  /** Absent without a collector of traces. */
  readonly tracing?: Tracing | undefined;
  /** Looks up places and devices of events; without it their columns stay empty. The caller closes it. */
  readonly enrichment?: Enrichment | undefined;
}

export interface CompactOptions {
  readonly lakeDir: string;
  /** Scratch folder of this compactor alone, emptied at start. */
  readonly spoolDir: string;
  readonly flushAgeMs: number;
  readonly flushMaxBytes: number;
  readonly flushMaxRows: number;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  /** Time from the end of a day until its sealed files are merged, ms; absent: never. */
  readonly mergeAfterMs?: number | undefined;
  /** Size of a merged file, bytes [128 MiB]. */
  readonly mergeFileBytes?: number | undefined;
  readonly retentionMs: number;
  /** Reads the age limits of rows; absent: none. */
  readonly readAgeRules?: (() => Promise<AgeRules>) | undefined;
  readonly duckdbMemoryMb: number;
  /** Commits between checkpoints, at least [100]. */
  readonly checkpointEvery?: number;
  readonly refusals?: RefusalFolder | undefined;
  /** Disables the lock, so that tests can let two compactors compete: the fence in the log must suffice. */
  readonly withoutLock?: boolean;
  /** Validity of a check of the stream's owner, ms; shorter in tests. */
  readonly ownerHoldsMs?: number;
  /** Number of known keys that become a slice (lake/batch/key-table.ts); fewer in tests. */
  readonly keySliceRows?: number;
  readonly lockWaitMs?: number;
}

/** Memory of the process without its engines, MiB: messages, keys, the heap, memory that an engine frees late. */
const processOverheadMb = 384;
const minMb = 128;

/**
 * Divides the memory setting between the engines of flushes and of seals, MiB. Half is for flushes, which bounds their
 * batches. Seals get what is left besides the process itself, and at least a quarter. With the default of 2048 MiB and
 * two arenas of glibc, the process took at most 1.3 GB in a soak of real events at full rate.
 */
export function divideMemory(memoryMb: number): { readonly flushMb: number; readonly sealMb: number } {
  const flushMb = Math.ceil(memoryMb / 2);
  const sealMb = Math.max(Math.ceil(memoryMb / 4), flushMb - processOverheadMb);
  return { flushMb: Math.max(minMb, flushMb), sealMb: Math.max(minMb, sealMb) };
}

/** Returns the first items up to a number and to a sum of sizes, at least one. */
export function takeBounded<T>(items: readonly T[], sizeOf: (item: T) => number, most: number, mostSize: number): T[] {
  let size = 0;
  const end = items.findIndex((item, index) => (size += sizeOf(item)) > mostSize && index > 0);
  return items.slice(0, Math.min(most, end === -1 ? items.length : end));
}
