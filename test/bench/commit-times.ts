import { stat } from 'node:fs/promises';
import path from 'node:path';
import { commitName, logFolder, readCommit } from '../../src/lake/log/log-files.ts';

/** A commit of a flush: its rows, and the time at which it became readable. */
export interface CommittedFlush {
  readonly rows: number;
  /** Unix milliseconds at which its first and its last event were received. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** Unix milliseconds at which the commit's file was linked. */
  readonly committedMs: number;
}

/** Reads successive commits. */
export interface CommitTimes {
  /** Returns the flushes since the last call. */
  next(): Promise<readonly CommittedFlush[]>;
}

interface Bounds {
  readonly received_at?: string;
}

async function readFlushes(tableDir: string, version: number): Promise<CommittedFlush[] | undefined> {
  const stats = await stat(path.join(logFolder(tableDir), commitName(version))).catch(() => undefined);
  if (stats === undefined) return undefined;
  const { actions } = await readCommit(tableDir, version);
  // A flush only adds files.
  if (actions.some(({ remove }) => remove !== undefined)) return [];
  return actions.flatMap(({ add }) => {
    if (add?.stats === undefined) return [];
    const { numRecords, minValues, maxValues } = JSON.parse(add.stats) as {
      readonly numRecords: number;
      readonly minValues: Bounds;
      readonly maxValues: Bounds;
    };
    const [firstMs, lastMs] = [Date.parse(minValues.received_at ?? ''), Date.parse(maxValues.received_at ?? '')];
    return [{ rows: numRecords, firstMs, lastMs, committedMs: stats.mtimeMs }];
  });
}

/** Follows the commits of a table after a version. */
export function followCommits(tableDir: string, afterVersion: number): CommitTimes {
  let version = afterVersion;
  return {
    async next() {
      const flushes: CommittedFlush[] = [];
      for (;;) {
        const found = await readFlushes(tableDir, version + 1);
        if (found === undefined) return flushes;
        flushes.push(...found);
        version += 1;
      }
    },
  };
}

const samples = 20;

/**
 * Returns quantiles of the seconds from an event's receipt to its commit. The events of a flush count as received at a
 * constant rate between its first and its last.
 */
export function freshnessAt(flushes: readonly CommittedFlush[], quantiles: readonly number[]): number[] {
  const ages = flushes
    .flatMap(({ rows, firstMs, lastMs, committedMs }) =>
      Array.from({ length: samples }, (_, index) => ({
        age: (committedMs - (firstMs + ((lastMs - firstMs) * (index + 0.5)) / samples)) / 1000,
        weight: rows / samples,
      })),
    )
    .toSorted((a, b) => a.age - b.age);
  const total = ages.reduce((sum, { weight }) => sum + weight, 0);
  return quantiles.map((quantile) => {
    let passed = 0;
    return ages.find(({ weight }) => (passed += weight) >= quantile * total)?.age ?? Number.NaN;
  });
}
