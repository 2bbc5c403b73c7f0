import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { lakePaths } from '../../lake/lake.ts';
import type { Table } from '../../lake/log/table.ts';
import type { CompactMetrics } from '../compact-metrics.ts';

export interface MaintenanceDependencies {
  readonly table: Table;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
  readonly counted: CompactMetrics;
  readonly paths: ReturnType<typeof lakePaths>;
  readonly writer: string;
  /**
   * Throws when the lake's folder is not the one that this compactor has locked any more: what lies there belongs to
   * somebody else.
   */
  readonly assertFolder: () => void;
}

export interface MaintenanceOptions {
  readonly spoolDir: string;
  readonly sealAgeMs: number;
  readonly sealMaxBytes: number;
  readonly retentionMs: number;
  readonly duckdbMemoryMb: number;
  /** Commits from one checkpoint to the next; 100 by default. */
  readonly checkpointEvery?: number;
}
