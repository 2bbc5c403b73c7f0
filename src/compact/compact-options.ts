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
