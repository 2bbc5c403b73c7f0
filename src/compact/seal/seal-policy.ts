import { localFiles } from '../../runtime/store/open-store.ts';
import { partitionPath, type Partition, partitionSelectSql, toPartition } from '../../datasets/partition.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';

/** The young rows of one partition, which become one sealed file. */
export interface PartitionGroup {
  readonly partition: Partition;
  readonly rows: number;
  /** Time when the oldest of them became available, by the service's clock, Unix ms. */
  readonly oldestMs: number;
  readonly files: readonly string[];
}

export interface DueOptions {
  readonly sealAgeMs: number;
  /** Size of a sealed file, bytes. A group of this size is due at once. */
  readonly sealMaxBytes: number;
}

const dayMs = 86_400_000;
/** When old rows are due, other old rows are sealed with them after this part of their wait. */
const alongPart = 0.75;

export function partitionKeyOf({ partition }: { readonly partition: Partition }): string {
  return partitionPath(partition);
}

/** Reports whether events of a partition's date keep arriving; true of a table without dates. */
function isCurrent({ date }: Partition, nowMs: number): boolean {
  if (date === undefined) return true;
  const ageMs = nowMs - Date.parse(`${date}T00:00:00Z`);
  return ageMs < 2 * dayMs && ageMs > -dayMs;
}

/**
 * Returns how long rows of a partition may stay young, ms. Rows of old or future dates trickle in over many dates: they
 * wait 24 times as long, at most a day, so that each date gets one file per day and not one per hour.
 */
function sealAgeOf(partition: Partition, nowMs: number, sealAgeMs: number): number {
  return isCurrent(partition, nowMs) ? sealAgeMs : Math.max(sealAgeMs, Math.min(24 * sealAgeMs, dayMs));
}

export type DueRows = ReturnType<typeof createDueRows>;

/**
 * Creates the choice of the rows that are due. `available_at` never goes back, so after the clock was set back rows
 * seem to be in the future: their wait starts when this is first seen, and again after a restart.
 */
export function createDueRows({ sealAgeMs, sealMaxBytes }: DueOptions) {
  /** When groups were first seen with rows in the future, by key and monotonic clock, until they are sealed. */
  let aheadSinceMs = new Map<string, number>();

  return {
    find(partitionGroups: readonly PartitionGroup[], young: readonly DataFile[], nowMs: number): PartitionGroup[] {
      const monotonicMs = performance.now();
      const ahead = partitionGroups
        .filter((partitionGroup) => partitionGroup.oldestMs > nowMs || aheadSinceMs.has(partitionKeyOf(partitionGroup)))
        .map(partitionKeyOf);
      aheadSinceMs = new Map(ahead.map((key) => [key, aheadSinceMs.get(key) ?? monotonicMs]));

      const bytes = young.reduce((sum, file) => sum + file.sizeBytes, 0);
      const rows = partitionGroups.reduce((sum, partitionGroup) => sum + partitionGroup.rows, 0);
      const bytesPerRow = rows === 0 ? 0 : bytes / rows;
      // Share of the time that a group may wait.
      const waited = (partitionGroup: PartitionGroup): number => {
        const sinceMs = aheadSinceMs.get(partitionKeyOf(partitionGroup));
        const waitedMs = Math.max(nowMs - partitionGroup.oldestMs, sinceMs === undefined ? 0 : monotonicMs - sinceMs);
        return waitedMs / sealAgeOf(partitionGroup.partition, nowMs, sealAgeMs);
      };
      const isOld = (partitionGroup: PartitionGroup): boolean => !isCurrent(partitionGroup.partition, nowMs);
      // History sent over hours would otherwise be due date by date, and each seal rewrites the rest.
      const least = partitionGroups.some((partitionGroup) => isOld(partitionGroup) && waited(partitionGroup) >= 1)
        ? alongPart
        : 1;
      return partitionGroups.filter(
        (partitionGroup) =>
          partitionGroup.rows * bytesPerRow >= sealMaxBytes ||
          waited(partitionGroup) >= (isOld(partitionGroup) ? least : 1),
      );
    },
    sealed(partitionGroups: readonly PartitionGroup[]): void {
      for (const partitionGroup of partitionGroups) aheadSinceMs.delete(partitionKeyOf(partitionGroup));
    },
  };
}

type FilePart = Omit<PartitionGroup, 'files'>;

/** Partitions of the young files, by absolute path. A young file never changes, so each is read once: three columns. */
export type YoungFileStats = Map<string, readonly FilePart[]>;

async function readParts(
  dataset: Dataset,
  duckdb: Duckdb,
  files: readonly DataFile[],
  known: YoungFileStats,
): Promise<void> {
  await localFiles.use(files, async (paths) => {
    const parts = new Map<string, FilePart[]>(paths.map((file) => [file, []]));
    const rows = await duckdb.rows(
      `SELECT filename, ${partitionSelectSql(dataset)}, count(*) AS rows, epoch_ms(min(available_at)) AS oldest
       FROM read_parquet(${sqlList(paths)}, hive_partitioning = false, filename = true) GROUP BY ALL`,
    );
    for (const row of rows)
      parts.get(String(row['filename']))?.push({
        partition: toPartition(dataset, row),
        rows: Number(row['rows']),
        oldestMs: Number(row['oldest']),
      });
    for (const [index, { absolutePath }] of files.entries())
      known.set(absolutePath, parts.get(paths[index] ?? '') ?? []);
  });
}

/** Groups the rows of young files by partition, in the order of their folders; reads files that are not known yet. */
export async function readPartitionGroups(
  dataset: Dataset,
  duckdb: Duckdb,
  files: readonly DataFile[],
  known: YoungFileStats = new Map(),
): Promise<PartitionGroup[]> {
  const unknown = files.filter(({ absolutePath }) => !known.has(absolutePath));
  if (unknown.length > 0) await readParts(dataset, duckdb, unknown, known);
  const groups = new Map<string, { partition: Partition; rows: number; oldestMs: number; files: string[] }>();
  for (const { absolutePath: file } of files)
    for (const part of known.get(file) ?? []) {
      const key = partitionKeyOf(part);
      const group = groups.get(key) ?? { partition: part.partition, rows: 0, oldestMs: Infinity, files: [] };
      group.rows += part.rows;
      group.oldestMs = Math.min(group.oldestMs, part.oldestMs);
      group.files.push(file);
      groups.set(key, group);
    }
  return [...groups].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group);
}

/** Divides the bytes of a young file between its partitions, by their rows; returns them by key. */
export function allocateBytes(
  { absolutePath, sizeBytes }: DataFile,
  known: YoungFileStats,
): (readonly [string, number])[] {
  const parts = known.get(absolutePath) ?? [];
  const all = parts.reduce((sum, { rows }) => sum + rows, 0);
  return parts.map((part) => [partitionKeyOf(part), (sizeBytes * part.rows) / all]);
}
