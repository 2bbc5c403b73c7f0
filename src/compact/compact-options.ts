import type { Clock } from '../runtime/clock.ts';
import type { CrashPoint } from '../runtime/crash-point.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { Enrichment } from '../enrichment/enrichment.ts';
import type { RefusalFolder } from '../refusals/refusal-files.ts';
import type { StreamReader } from '../stream/stream.ts';

export interface CompactDependencies {
  readonly reader: StreamReader;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly crashPoint?: CrashPoint;
  /** Tells places and devices of the events; without it their columns stay empty. The caller closes it. */
  readonly enrichment?: Enrichment | undefined;
}

export interface CompactOptions {
  readonly lakeDir: string;
  /** Working folder of this compactor alone: emptied at start. */
  readonly spoolDir: string;
  readonly flushAgeMs: number;
  readonly flushMaxBytes: number;
  readonly flushMaxRows: number;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly retentionMs: number;
  readonly duckdbMemoryMb: number;
  /** Commits from one checkpoint to the next; 100 by default. */
  readonly checkpointEvery?: number;
  /** Where the owners of apps look for refused requests; absent: nothing is kept there. */
  readonly refusals?: RefusalFolder | undefined;
  /** Take no lock, so that tests can let two compactors compete; the fence in the log must hold by itself. */
  readonly withoutLock?: boolean;
  /** For how long the answer to whose the stream is holds; less in tests. */
  readonly ownerHoldsMs?: number;
  /** Known keys that become a slice of them (lake/batch/key-table.ts); less in tests. */
  readonly keySliceRows?: number;
  /** How long to wait for a compactor that is on its way out. */
  readonly lockWaitMs?: number;
}

/** What the compactor's two engines may take, MiB. */
interface EngineMemory {
  readonly flushMb: number;
  readonly sealMb: number;
}

/** What the process takes beside its engines: messages on their way, keys, its own heap, what an engine frees late. */
const besideMb = 384;
/** The least an engine works with. */
const leastMb = 128;

/**
 * Divides the memory setting: half of it for flushing, whose batches are bounded by that, and for sealing what is left
 * beside it and the process itself, at least a quarter. With the default of 2048 MiB and two arenas of glibc the
 * whole process took 1.3 GB at most in a soak of real events at full rate, seals of 128 MiB of young files among them.
 */
export function divideMemory(memoryMb: number): EngineMemory {
  const flushMb = Math.ceil(memoryMb / 2);
  const sealMb = Math.max(Math.ceil(memoryMb / 4), flushMb - besideMb);
  return { flushMb: Math.max(leastMb, flushMb), sealMb: Math.max(leastMb, sealMb) };
}
