import { partitionPath, type Partition, partitionSelectSql, toPartition } from '../../datasets/partition.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';
import type { Dataset } from '../../datasets/dataset.ts';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList } from '../../lake/sql/literals.ts';

/** The rows of one partition among the young files: they become one sealed file. */
export interface Group {
  readonly partition: Partition;
  readonly rows: number;
  /** When the oldest of them became available, by the service's clock. */
  readonly oldestMs: number;
  /** Absolute paths of the young files that hold them. */
  readonly files: readonly string[];
}

export interface DueOptions {
  /** How long rows stay young, milliseconds. */
  readonly sealAgeMs: number;
  /** A group of so many bytes is due at once; the most that a sealed file is to hold. */
  readonly sealMaxBytes: number;
}

/** Knows which rows are due to be sealed. */
export interface DueRows {
  /** The groups that have waited long enough, or are large enough. */
  find(groups: readonly Group[], young: readonly DataFile[], nowMs: number): Group[];
  /** Told when all rows of some groups are sealed: those that come later wait from then on. */
  sealed(groups: readonly Group[]): void;
}

const dayMs = 86_400_000;
/** Rows of dates long past that have waited for this part of their time go along with those whose time is over. */
const alongPart = 0.75;

/** What distinguishes the rows of one partition from others. */
export function keyOf({ partition }: { readonly partition: Partition }): string {
  return partitionPath(partition);
}

/**
 * Says whether events of a partition's date are expected to come all the time; where rows are not parted by date, they
 * are.
 */
function isCurrent({ date }: Partition, nowMs: number): boolean {
  if (date === undefined) return true;
  const ageMs = nowMs - Date.parse(`${date}T00:00:00Z`);
  return ageMs < 2 * dayMs && ageMs > -dayMs;
}

/**
 * How long rows of a date may stay young. Rows of dates long past (or far ahead) come in trickles over many dates; they
 * wait 24 times as long, up to a day, so that each date gets one file a day and not one an hour.
 */
function sealAgeOf(partition: Partition, nowMs: number, sealAgeMs: number): number {
  return isCurrent(partition, nowMs) ? sealAgeMs : Math.max(sealAgeMs, Math.min(24 * sealAgeMs, dayMs));
}

/**
 * Starts to look at what is due. After the clock was set back, rows seem to become available in the future, for as long
 * as it was ahead, because `available_at` never goes back; such rows have waited since they were first seen so. A
 * restart of the compactor begins that wait anew.
 */
export function createDueRows(options: DueOptions): DueRows {
  /**
   * When groups were first seen with rows from the future, by their key and the monotonic clock; kept until they are
   * sealed.
   */
  let aheadSinceMs = new Map<string, number>();

  return {
    find(groups, young, nowMs) {
      const monotonicMs = performance.now();
      const ahead = groups
        .filter((group) => group.oldestMs > nowMs || aheadSinceMs.has(keyOf(group)))
        .map((group) => keyOf(group));
      aheadSinceMs = new Map(ahead.map((key) => [key, aheadSinceMs.get(key) ?? monotonicMs]));

      const bytes = young.reduce((sum, file) => sum + file.sizeBytes, 0);
      const rows = groups.reduce((sum, group) => sum + group.rows, 0);
      const bytesPerRow = rows === 0 ? 0 : bytes / rows;
      /** The part of its time that a group has waited. */
      const waited = (group: Group): number => {
        const sinceMs = aheadSinceMs.get(keyOf(group));
        const waitedMs = Math.max(nowMs - group.oldestMs, sinceMs === undefined ? 0 : monotonicMs - sinceMs);
        return waitedMs / sealAgeOf(group.partition, nowMs, options.sealAgeMs);
      };
      const isOld = (group: Group): boolean => !isCurrent(group.partition, nowMs);
      // History that was sent over hours would otherwise be due date after date, each time at the price of rewriting
      // the rest.
      const least = groups.some((group) => isOld(group) && waited(group) >= 1) ? alongPart : 1;
      return groups.filter(
        (group) => group.rows * bytesPerRow >= options.sealMaxBytes || waited(group) >= (isOld(group) ? least : 1),
      );
    },
    sealed(groups) {
      for (const group of groups) aheadSinceMs.delete(keyOf(group));
    },
  };
}

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
