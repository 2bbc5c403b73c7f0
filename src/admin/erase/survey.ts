import { events, type Dataset } from '../../datasets/dataset.ts';
import type { FailedEvent } from '../../lake/files/failed-events.ts';
import { assertTablesNamed, listOtherTables, tablePaths } from '../../lake/lake.ts';
import { readSnapshot, type Snapshot } from '../../lake/log/snapshot.ts';
import type { Table } from '../../lake/log/table.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { findQuarantinedHits, listFailedHits, type QuarantinedHit } from './erase-outside-tables.ts';
import { findFilesToErase, findUserIdScopes, sumHits, type FileToErase, type UserIdScope } from './erase-table.ts';
import { targetParts, type ErasureTarget } from './erase-target.ts';

export interface SurveyDependencies {
  readonly table: Table;
  readonly lakeDir: string;
  readonly duckdb: Duckdb;
}

/** A table with the files that have rows of a target. */
export interface SurveyedTable {
  readonly dataset: Dataset;
  readonly snapshot: Snapshot;
  readonly hits: readonly FileToErase[];
}

/** All that the lake has of a target, without the backlog of the stream. Of each table one version is read. */
export interface Survey {
  readonly tables: readonly SurveyedTable[];
  readonly failed: readonly FailedEvent[];
  readonly quarantined: readonly QuarantinedHit[];
  readonly meanings: readonly UserIdScope[];
}

/** Finds what an erasure would remove. Needs neither broker nor compactor. Errors: `file_damaged`, `conflict`. */
export async function surveyTarget(
  { table, lakeDir, duckdb }: SurveyDependencies,
  target: ErasureTarget,
): Promise<Survey> {
  targetParts(target);
  await assertTablesNamed(lakeDir);
  await table.refresh();
  const snapshots: [Dataset, Snapshot][] = [[events, table.snapshot()]];
  for (const dataset of await listOtherTables(lakeDir))
    snapshots.push([dataset, await readSnapshot(tablePaths(lakeDir, dataset).table)]);
  const tables: SurveyedTable[] = [];
  const failed: FailedEvent[] = [];
  const meanings: UserIdScope[] = [];
  for (const [dataset, snapshot] of snapshots) {
    const hits = await findFilesToErase(duckdb, snapshot, target);
    tables.push({ dataset, snapshot, hits });
    for (const meaning of await findUserIdScopes(duckdb, snapshot, hits, target)) meanings.push(meaning);
    for (const event of await listFailedHits(lakeDir, dataset, snapshot, target)) failed.push(event);
  }
  return { tables, failed, quarantined: await findQuarantinedHits({ lakeDir, duckdb }, target), meanings };
}

/** Counts of what an erasure would remove from the lake now, without the backlog of the stream. */
export interface ErasureDryRun {
  /** Of all tables. */
  readonly rows: number;
  readonly failedEvents: number;
  /** Rows of files in quarantine; absent if 0. */
  readonly quarantinedRows?: number;
  readonly filesToRewrite: number;
  readonly meanings: readonly UserIdScope[];
  /** Tables with such rows; absent if no table has one. */
  readonly tables?: Readonly<Record<string, { readonly rows: number; readonly filesToRewrite: number }>>;
}

/** Counts a survey. */
export function countSurvey({ tables, failed, quarantined, meanings }: Survey): ErasureDryRun {
  const found = tables
    .filter(({ hits }) => hits.length > 0)
    .map(({ dataset, hits }) => [dataset.table, { rows: sumHits(hits), filesToRewrite: hits.length }] as const);
  const quarantinedRows = quarantined.reduce((sum, { hits }) => sum + hits, 0);
  return {
    rows: found.reduce((sum, [, { rows }]) => sum + rows, 0),
    failedEvents: failed.length,
    ...(quarantinedRows === 0 ? {} : { quarantinedRows }),
    filesToRewrite: found.reduce((sum, [, { filesToRewrite }]) => sum + filesToRewrite, 0),
    meanings,
    ...(found.length === 0 ? {} : { tables: Object.fromEntries(found) }),
  };
}

/** Counts what an erasure would remove. Errors: those of `surveyTarget`. */
export async function dryRunErasure(dependencies: SurveyDependencies, target: ErasureTarget): Promise<ErasureDryRun> {
  return countSurvey(await surveyTarget(dependencies, target));
}
