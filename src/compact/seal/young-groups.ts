import type { Dataset } from '../../datasets/dataset.ts';
import { partitionSelectSql, toPartition, type Partition } from '../../datasets/partition.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import { keyOf, type Group } from './seal-policy.ts';

/** Rows of one partition in one young file. */
interface FilePart {
  readonly partition: Partition;
  readonly rows: number;
  /** When the oldest of them became available, Unix milliseconds. */
  readonly oldestMs: number;
}

/**
 * What the young files hold, by their absolute paths. A young file never changes, so each is read once: three columns
 * of it.
 */
export type KnownParts = Map<string, readonly FilePart[]>;

async function readParts(
  dataset: Dataset,
  duckdb: Duckdb,
  files: readonly DataFile[],
  known: KnownParts,
): Promise<void> {
  const parts = new Map<string, FilePart[]>(files.map((file) => [file.absolutePath, []]));
  const rows = await duckdb.rows(
    `SELECT filename, ${partitionSelectSql(dataset)}, count(*) AS rows, epoch_ms(min(available_at)) AS oldest
     FROM read_parquet(${sqlList([...parts.keys()])}, hive_partitioning = false, filename = true) GROUP BY ALL`,
  );
  for (const row of rows)
    parts.get(String(row['filename']))?.push({
      partition: toPartition(dataset, row),
      rows: Number(row['rows']),
      oldestMs: Number(row['oldest']),
    });
  for (const [file, found] of parts) known.set(file, found);
}

/** Adds up what young files hold by partition, in the order of their folders; reads those that are not known yet. */
export async function readGroups(
  dataset: Dataset,
  duckdb: Duckdb,
  files: readonly DataFile[],
  known: KnownParts = new Map(),
): Promise<Group[]> {
  const unknown = files.filter(({ absolutePath }) => !known.has(absolutePath));
  if (unknown.length > 0) await readParts(dataset, duckdb, unknown, known);
  const groups = new Map<string, { partition: Partition; rows: number; oldestMs: number; files: string[] }>();
  for (const { absolutePath: file } of files)
    for (const part of known.get(file) ?? []) {
      const key = keyOf(part);
      const group = groups.get(key) ?? { partition: part.partition, rows: 0, oldestMs: Infinity, files: [] };
      group.rows += part.rows;
      group.oldestMs = Math.min(group.oldestMs, part.oldestMs);
      group.files.push(file);
      groups.set(key, group);
    }
  return [...groups].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group);
}

/** Shares out the bytes of a young file to the partitions that it holds, by their rows; each with its key. */
export function shareOut({ absolutePath, sizeBytes }: DataFile, known: KnownParts): (readonly [string, number])[] {
  const parts = known.get(absolutePath) ?? [];
  const all = parts.reduce((sum, { rows }) => sum + rows, 0);
  return parts.map((part) => [keyOf(part), (sizeBytes * part.rows) / all]);
}
