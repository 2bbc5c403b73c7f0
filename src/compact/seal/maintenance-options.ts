import type { Clock } from '../../runtime/clock.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { lakePaths } from '../../lake/lake.ts';
import type { Table } from '../../lake/log/table.ts';
import type { CompactMetrics } from '../compact-metrics.ts';

/** What the maintenance of the lake works with. */
export interface MaintenanceDependencies {
  /** The table of the imported events: its log says whose the lake is. */
  readonly leader: Table;
  readonly clock: Clock;
  readonly crashPoint: CrashPoint;
  readonly logger: Logger;
  readonly counted: CompactMetrics;
  readonly lakeDir: string;
  readonly writer: string;
  /**
   * Throws when the lake's folder is not the one that this compactor has locked any more: what lies there belongs to
   * somebody else.
   */
  readonly assertFolder: () => void;
}

/** What the maintenance of one table works with. */
export interface TableDependencies extends MaintenanceDependencies {
  readonly dataset: Dataset;
  /** That of the events is the leader itself. */
  readonly table: Table;
  /** The table's own places, and those of the lake. */
  readonly paths: ReturnType<typeof lakePaths>;
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
