import { describeBasis, findBasis } from '../../src/export/worker/basis.ts';
import type { WorkerPlan } from '../../src/export/jobs/worker-messages.ts';
import { pruneFiles } from '../../src/lake/files/prune.ts';
import { sqlList } from '../../src/lake/sql/literals.ts';
import { query } from './lake.ts';

/** What one call of a change feed gives. */
export interface Feed {
  readonly version: number;
  /** What the next call begins with. */
  readonly next: string;
  readonly ids: readonly string[];
}

/** Reads what came to a table since a call, or all, by the way of an export. */
export async function readFeed(tableDir: string, since: string | undefined): Promise<Feed> {
  const request = { event: 'customEvents', ...(since === undefined ? {} : { sinceVersion: since }) };
  const plan = { tableDir, request, retentionMs: 0, begunMs: 0 } as unknown as WorkerPlan;
  const basis = await findBasis(plan);
  const { nextSinceVersion, version } = await describeBasis(plan, basis);
  if (basis.snapshot.version < 0) return { version, next: nextSinceVersion, ids: [] };
  const { sinceMs = 0 } = basis;
  const { emptyFile, files } = basis.snapshot;
  const kept = pruneFiles(files, { availableAt: { fromMs: sinceMs } }).map(({ absolutePath }) => absolutePath);
  const rows = await query(
    `SELECT event_id FROM read_parquet(${sqlList([emptyFile, ...kept])}, union_by_name = true, hive_partitioning = false)
     WHERE available_at > make_timestamptz(${sinceMs} * 1000)`,
  );
  return { version, next: nextSinceVersion, ids: rows.map((row) => String(row['event_id'])) };
}
