import { partitionPath, type Partition } from '../../datasets/partition.ts';
import type { DataFile } from '../../lake/log/snapshot.ts';

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
