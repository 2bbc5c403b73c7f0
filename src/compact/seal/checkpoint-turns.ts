import type { CrashPoint } from '../../runtime/crash-point.ts';
import { checkpointEvery, checkpointWhenDue } from '../../lake/clean.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import type { Table } from '../../lake/log/table.ts';

/** The checkpoints of one table, as the one compactor that writes them knows them. */
export interface CheckpointTurns {
  /** Writes a checkpoint when one is due. The log's folder is looked into only where that may be. */
  turn(duckdb: Duckdb): Promise<void>;
}

/** Creates the turns; the first looks at the log. `every`: commits from one checkpoint to the next. */
export function createCheckpointTurns(table: Table, crashPoint: CrashPoint, every = checkpointEvery): CheckpointTurns {
  /** The newest checkpoint that is known to be there, with the hint to it. */
  let newest: number | undefined;
  return {
    async turn(duckdb) {
      const { version } = table.state();
      const mayRest = newest !== undefined && version - newest < every && newest >= (table.lake().forgetBefore ?? 0);
      if (!mayRest) newest = await checkpointWhenDue(duckdb, table, crashPoint, every);
    },
  };
}
